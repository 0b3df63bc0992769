//! The system calls that rustix does not offer: ioperm, signalfd, and process control, which it
//! leaves to a libc.
//!
//! Numbers: arch/x86/entry/syscalls/syscall_64.tbl of the kernel.

use core::arch::asm;

use rustix::{
    fd::{FromRawFd, OwnedFd},
    io::Errno,
    process::Pid,
};

const RT_SIGPROCMASK: usize = 14;
const FORK: usize = 57;
const EXECVE: usize = 59;
const IOPERM: usize = 173;
const EXIT_GROUP: usize = 231;
const SIGNALFD4: usize = 289;

/// A set of signals in the kernel's format: bit n - 1 is signal n.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct SignalSet(u64);

impl SignalSet {
    pub const NONE: SignalSet = SignalSet(0);
    /// SIGCHLD.
    pub const CHILD: SignalSet = SignalSet(1 << 16);
}

/// # Safety
/// The call must be safe with these arguments.
unsafe fn call(number: usize, arguments: [usize; 4]) -> Result<usize, Errno> {
    let result: isize;
    let [a, b, c, d] = arguments;
    // SAFETY: the kernel's calling convention on x86-64; it clobbers rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    match result {
        -4095..0 => Err(Errno::from_raw_os_error(-result as i32)),
        _ => Ok(result as usize),
    }
}

pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: does not return; the loop satisfies the type.
        let _ = unsafe { call(EXIT_GROUP, [status as usize, 0, 0, 0]) };
    }
}

/// Copies this process; returns the child's id in the parent, `None` in the child.
pub fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: there is only one thread, so the child is complete. Memory is copied, not shared,
    // except for the output page, which only `command` writes, in the parent.
    unsafe { call(FORK, [0; 4]) }.map(|pid| Pid::from_raw(pid as i32))
}

/// Executes another program; returns only on failure.
///
/// # Safety
/// `path` is NUL-terminated; `argv` and `envp` hold pointers to NUL-terminated strings and end
/// with a null pointer.
pub unsafe fn execve(path: *const u8, argv: &[*const u8], envp: &[*const u8]) -> Errno {
    let arguments = [path as usize, argv.as_ptr() as usize, envp.as_ptr() as usize, 0];
    // SAFETY: the caller's promise.
    match unsafe { call(EXECVE, arguments) } {
        Ok(_) => Errno::INVAL,
        Err(error) => error,
    }
}

/// Blocks exactly `signals`.
pub fn block_signals(signals: SignalSet) {
    const SETMASK: usize = 2;
    let set = core::ptr::from_ref(&signals) as usize;
    // SAFETY: the kernel reads the set, of the size passed. It accepts all well-formed sets.
    let _ = unsafe { call(RT_SIGPROCMASK, [SETMASK, set, 0, size_of::<SignalSet>()]) };
}

/// A non-blocking file descriptor that is readable while one of `signals` is pending.
pub fn signalfd(signals: SignalSet) -> Result<OwnedFd, Errno> {
    /// `O_CLOEXEC | O_NONBLOCK`, which are `SFD_CLOEXEC | SFD_NONBLOCK` too.
    const FLAGS: usize = 0o2_000_000 | 0o4_000;
    /// Requests a new file descriptor.
    const NEW: usize = usize::MAX;
    let set = core::ptr::from_ref(&signals) as usize;
    // SAFETY: the kernel reads the set, of the size passed, and returns a new file descriptor.
    unsafe {
        let fd = call(SIGNALFD4, [NEW, set, size_of::<SignalSet>(), FLAGS])?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Grants or revokes this process's access to `count` I/O ports from `base` on. Children inherit
/// it, also across exec, and it slows down every switch to them: revoke it in them.
pub fn ioperm(base: u16, count: u16, on: bool) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    unsafe { call(IOPERM, [base.into(), count.into(), on.into(), 0]) }.map(drop)
}
