//! The transition from the VMM's entry state to Rust code, and the panic handler.

use core::arch::naked_asm;
use core::panic::PanicInfo;

use hypercalls::payload::Shared;

use crate::port;
use crate::vcpu::CallingVcpu;

/// The status of a vCPU that panicked.
const STATUS_PANIC: u32 = 101;

/// Entry of every vCPU. In: `rdi` its index, `rsi` the address of the [`Shared`] block, `rsp` the
/// end of its stack. The processor must accept SSE (CR4.OSFXSR set, CR0.EM clear).
/// # Safety
/// Entered once per vCPU by the VMM, never called.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn _start() -> ! {
    // The call leaves the stack aligned as the ABI requires at a function's first instruction,
    // regardless of the value of rsp at entry.
    naked_asm!("cld", "and rsp, -16", "xor ebp, ebp", "call {start}", "ud2", start = sym start)
}

extern "C" fn start(index: u64, shared: *const Shared) -> ! {
    // SAFETY: the VMM maps the entire block, zeroed, at this address for as long as the guest runs,
    // and accesses it only by atomics.
    let shared = unsafe { &*shared };
    let vcpu = CallingVcpu::new(index as usize, shared);
    let status = crate::run(&vcpu);
    port::vcpu_done(status)
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    port::vcpu_done(STATUS_PANIC)
}
