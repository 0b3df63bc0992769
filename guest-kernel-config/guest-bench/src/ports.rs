//! The VMM's I/O ports, for kernels that do not use them.

use std::{arch::asm, io};

use hypercalls::ports::{EVENT, GATE, GuestEvent};

/// Number of iopl(2).
const IOPL: i64 = 172;

/// Access to the ports by the thread that opened them.
#[derive(Debug)]
pub struct Ports {
    base: u16,
}

impl Ports {
    /// Permits this thread to use all I/O ports, which root may do (`CONFIG_X86_IOPL_IOPERM`).
    pub fn open(base: u16) -> io::Result<Self> {
        let result: i64;
        // SAFETY: iopl(3) changes no memory. Only the instructions below use the ports.
        unsafe {
            asm!("syscall", inlateout("rax") IOPL => result, in("rdi") 3_i64, lateout("rcx") _,
                lateout("r11") _, options(nostack));
        }
        match result {
            0 => Ok(Self { base }),
            error => {
                let error = io::Error::from_raw_os_error(-error as i32);
                Err(io::Error::other(format!(
                    "cannot use I/O ports (CONFIG_X86_IOPL_IOPERM): {error}"
                )))
            }
        }
    }

    /// Reports an event.
    pub fn report(&self, event: GuestEvent) {
        // SAFETY: `open` has permitted it, and the VMM's port changes no memory.
        unsafe {
            asm!("out dx, eax", in("dx") self.base + EVENT, in("eax") event as u32,
                options(nostack, preserves_flags));
        }
    }

    /// Whether all machines have reached the step that this machine reported last.
    pub fn is_gate_open(&self) -> bool {
        let answer: u32;
        // SAFETY: as above.
        unsafe {
            asm!("in eax, dx", in("dx") self.base + GATE, out("eax") answer,
                options(nostack, preserves_flags));
        }
        answer != 0
    }
}
