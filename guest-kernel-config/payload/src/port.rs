//! Port I/O, and the contract's ports.

use core::arch::asm;
use core::sync::atomic::{AtomicU16, Ordering};

use hypercalls::ports;

/// The base of the contract's ports; all vCPUs store the same value.
static BASE: AtomicU16 = AtomicU16::new(ports::DEFAULT_BASE);

/// Sets the base port that the VMM announced.
pub fn set_base(base: u16) {
    BASE.store(base, Ordering::Relaxed);
}

/// The port at `offset` of the contract.
#[inline]
pub fn at(offset: u16) -> u16 {
    BASE.load(Ordering::Relaxed).wrapping_add(offset)
}

#[inline]
pub fn out32(port: u16, value: u32) {
    // SAFETY: IOPL or the TSS permits this guest every port; the write exits to the VMM, which
    // accesses only memory that Rust code accesses through atomics. Without `nomem`, the compiler
    // caches no memory across the exit.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags))
    }
}

pub fn out16(port: u16, value: u16) {
    // SAFETY: as for `out32`.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) }
}

pub fn out8(port: u16, value: u8) {
    // SAFETY: as for `out32`.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) }
}

pub fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as for `out32`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) }
    value
}

pub fn in16(port: u16) -> u16 {
    let value;
    // SAFETY: as for `out32`.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nostack, preserves_flags)) }
    value
}

pub fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: as for `out32`.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags))
    }
    value
}

/// Reports to the VMM that the calling vCPU is done, with this status.
pub fn vcpu_done(status: u32) -> ! {
    loop {
        out32(at(ports::VCPU_DONE), status);
        // The VMM does not resume a vCPU that is done; if it did, the write would be repeated.
        core::hint::spin_loop();
    }
}
