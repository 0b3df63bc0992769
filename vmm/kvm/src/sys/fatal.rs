//! Restores the terminal on fatal signals, and reports resource limits that end this process.

use std::{
    cell::UnsafeCell,
    mem::{self, MaybeUninit},
    ptr,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Signals that end a process at once: from a fault, from abort(3), or from the user's Ctrl-\.
const FATAL: [libc::c_int; 6] =
    [libc::SIGQUIT, libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// The original modes of stdin's terminal, in the kernel's format (include/uapi/asm-generic/termbits.h). The
/// C library's tcsetattr reads the modes back after setting them, which a confined thread may not do.
struct SavedModes(UnsafeCell<MaybeUninit<libc::termios2>>);

// SAFETY: written once, by `arm` within `ONCE`, before the handlers that read it are installed; never written
// again.
unsafe impl Sync for SavedModes {}

static SAVED_MODES: SavedModes = SavedModes(UnsafeCell::new(MaybeUninit::uninit()));
static ONCE: Once = Once::new();
static IS_ARMED: AtomicBool = AtomicBool::new(false);

/// Makes fatal signals restore the terminal modes before they end the process. The modes are saved from
/// stdin's terminal at the first call.
pub fn arm() {
    ONCE.call_once(|| {
        // SAFETY: `SAVED_MODES` is written once, before the handlers that read it are installed.
        let saved = unsafe {
            libc::ioctl(libc::STDIN_FILENO, libc::TCGETS2, (*SAVED_MODES.0.get()).as_mut_ptr())
        };
        if saved != 0 {
            return;
        }
        // The handler is reset after the first signal and the signal is not blocked, so that raising it again
        // has the default effect.
        let flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
        FATAL.into_iter().for_each(|signal| handle(signal, restore, flags));
    });
    IS_ARMED.store(true, SeqCst);
}

/// Installs a handler, unless the signal is ignored.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int), flags: libc::c_int) {
    if super::disposition::is_ignored(signal) {
        return;
    }
    // SAFETY: the sigaction is zeroed and then filled in. All handlers of this file make only
    // async-signal-safe calls.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}

/// Printed when the process has used up its CPU time limit.
pub const OUT_OF_TIME: &str = "pvticket: CPU time limit reached: raise it with ulimit -t";

/// Whether another part of the process shuts it down in an orderly way at the CPU time limit.
static TIME_IS_WATCHED: AtomicBool = AtomicBool::new(false);
/// Whether the process is part of a command, which continues without it.
static IS_WORKER: AtomicBool = AtomicBool::new(false);

/// Handles the signals of resource limits (setrlimit(2)). A write beyond RLIMIT_FSIZE fails with EFBIG, just
/// as a write to a full disk fails with ENOSPC, and RLIMIT_CPU ends the process with a single line. Executed
/// programs get the default dispositions.
pub fn handle_limits() {
    handle(libc::SIGXFSZ, ignore, libc::SA_RESTART);
    handle(libc::SIGXCPU, out_of_time, libc::SA_RESTART | libc::SA_ONSTACK);
}

/// Leaves the CPU time limit to the caller, which handles its signal.
pub fn watch_cpu_time() {
    TIME_IS_WATCHED.store(true, SeqCst);
}

/// Makes the CPU time limit end this process immediately, even after [`watch_cpu_time`]: the command passes on
/// its workers' message and exit status.
pub fn exit_at_cpu_limit() {
    IS_WORKER.store(true, SeqCst);
}

extern "C" fn ignore(_: libc::c_int) {}

extern "C" fn out_of_time(_: libc::c_int) {
    if !TIME_IS_WATCHED.load(SeqCst) || IS_WORKER.load(SeqCst) {
        exit_with(OUT_OF_TIME);
    }
}

/// Prints this line and ends the process with status 1. Async-signal-safe.
pub(super) fn exit_with(line: &str) -> ! {
    restore_terminal();
    write_nonblocking(libc::STDERR_FILENO, line.as_bytes());
    write_nonblocking(libc::STDERR_FILENO, b"\n");
    // SAFETY: takes no pointers.
    unsafe { libc::_exit(1) }
}

/// Writes as much as the descriptor accepts without blocking.
fn write_nonblocking(fd: libc::c_int, bytes: &[u8]) {
    // SAFETY: both pointers are live through the calls, which are async-signal-safe (poll is a bare system
    // call on Linux). The write follows a poll for room.
    unsafe {
        let mut to = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        if libc::poll(&mut to, 1, 0) == 1 {
            libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        }
    }
}

/// Undoes [`arm`] after the terminal has been restored.
pub fn disarm() {
    IS_ARMED.store(false, SeqCst);
}

extern "C" fn restore(signal: libc::c_int) {
    restore_terminal();
    // SAFETY: takes no pointers.
    unsafe { libc::raise(signal) };
}

/// Restores the terminal's modes, if they have been changed. Async-signal-safe.
pub(super) fn restore_terminal() {
    if !IS_ARMED.swap(false, SeqCst) {
        return;
    }
    // SAFETY: `SAVED_MODES` was written before arming. The ioctl is a bare system call, and its pointer is
    // live.
    unsafe {
        let saved = (*SAVED_MODES.0.get()).as_ptr();
        libc::ioctl(libc::STDIN_FILENO, libc::TCSETS2, saved);
    }
}
