//! From the process's entry point to [`run`](crate::run), and the end after a panic.

use alloc::vec::Vec;
use core::{
    ffi::{CStr, c_char},
    panic::PanicInfo,
};

use crate::{machine::Platform, report, syscall};

// The kernel enters with argc, argv, 0, envp, 0 on the stack (System V ABI, AMD64 supplement,
// section 3.4.1) and no return address.
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {start}",
    "ud2",
    start = sym start,
);

/// # Safety
/// `stack` is the stack pointer at entry.
unsafe extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: argc is there, followed by argv, which ends with a null pointer.
    let words = unsafe { strings(stack.add(1).cast()) };
    syscall::exit(crate::run(&words))
}

/// # Safety
/// `list` points to pointers to NUL-terminated strings that live forever; null ends it.
unsafe fn strings(mut list: *const *const c_char) -> Vec<&'static CStr> {
    let mut all = Vec::new();
    // SAFETY: the caller's promise; each step stays within the list.
    while let Some(first) = unsafe { (*list).as_ref() } {
        // SAFETY: the caller's promise.
        all.push(unsafe { CStr::from_ptr(first) });
        // SAFETY: `list` was not the end.
        list = unsafe { list.add(1) };
    }
    all
}

/// Exit status of the machine, or of a child of init, after a panic: what a shell reports for SIGABRT.
const PANICKED: i32 = 134;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report::error(format_args!("{info}"));
    if rustix::process::getpid().is_init() {
        Platform::find().end(PANICKED)
    }
    syscall::exit(PANICKED)
}
