//! The process's entry point, which calls [`run`](crate::run), and the panic handler.

use core::panic::PanicInfo;

use crate::{machine::Platform, report, syscall};

// The kernel enters without a return address; the arguments on the stack are not needed (System V
// ABI, AMD64 supplement, section 3.4.1).
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {start}",
    "ud2",
    start = sym start,
);

extern "C" fn start() -> ! {
    syscall::exit(crate::run())
}

/// Exit status of the VM, or of a child of init, after a panic: a shell's status for SIGABRT.
const STATUS_PANIC: i32 = 134;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report::error(format_args!("{info}"));
    if rustix::process::getpid().is_init() {
        Platform::detect().shut_down(STATUS_PANIC)
    }
    syscall::exit(STATUS_PANIC)
}
