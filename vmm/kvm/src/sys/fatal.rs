//! Restores the terminal on signals that end this process at once, and prints a line for limits that do.

use std::{
    cell::UnsafeCell,
    mem::{self, MaybeUninit},
    ptr,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Signals that end a process immediately: from its own fault, from abort(3), from the user's
/// Ctrl-\.
const FATAL: [libc::c_int; 6] =
    [libc::SIGQUIT, libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// The modes of stdin's terminal before they were changed, in the form of the kernel
/// (include/uapi/asm-generic/termbits.h). The C library's tcsetattr reads them again after it has set them,
/// which a confined thread may not do.
struct Saved(UnsafeCell<MaybeUninit<libc::termios2>>);

// SAFETY: written once, by `arm` within `ONCE`, before the handlers are installed that read it;
// never written after.
unsafe impl Sync for Saved {}

static SAVED: Saved = Saved(UnsafeCell::new(MaybeUninit::uninit()));
static ONCE: Once = Once::new();
static ARMED: AtomicBool = AtomicBool::new(false);
/// The sequence that leaves the alternate screen has to be written to stdout.
static ON_OTHER_SCREEN: AtomicBool = AtomicBool::new(false);

/// xterm's control sequences: line wrapping on, cursor visible, normal screen.
pub const LEAVE_SCREEN: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// From now on, a fatal signal restores the modes that stdin's terminal had at the first call,
/// before it ends the process.
pub fn arm(on_other_screen: bool) {
    ONCE.call_once(|| {
        // SAFETY: `SAVED` is written by one thread, once, and read by handlers that are installed after.
        let saved = unsafe {
            libc::ioctl(libc::STDIN_FILENO, libc::TCGETS2, (*SAVED.0.get()).as_mut_ptr())
        };
        if saved != 0 {
            return;
        }
        // Reset after the first signal and not blocked meanwhile: raised again, it has its
        // default effect.
        let flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
        FATAL.into_iter().for_each(|signal| handle(signal, restore, flags));
    });
    ON_OTHER_SCREEN.store(on_other_screen, SeqCst);
    ARMED.store(true, SeqCst);
}

/// Has a signal handled, unless it was ignored when the process was started.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int), flags: libc::c_int) {
    if super::disposition::is_ignored(signal) {
        return;
    }
    // SAFETY: the sigaction is zeroed and then filled in. Each handler of this file makes calls only that
    // are async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}

/// The line of a process that has used its limit of CPU time up.
pub const OUT_OF_TIME: &str =
    "pvticket: the limit of CPU time is reached: allow more with ulimit -t";

/// Another part of the process ends it in an orderly way then.
static TIME_IS_WATCHED: AtomicBool = AtomicBool::new(false);
/// The process is a part of a command, which goes on without it.
static IS_PART: AtomicBool = AtomicBool::new(false);

/// The signals of limits (setrlimit(2)): a write beyond RLIMIT_FSIZE fails with EFBIG, as one to a full disk
/// with ENOSPC, and RLIMIT_CPU ends the process in one line. Programs that it executes have the defaults.
pub fn expect_limits() {
    handle(libc::SIGXFSZ, go_on, libc::SA_RESTART);
    handle(libc::SIGXCPU, out_of_time, libc::SA_RESTART | libc::SA_ONSTACK);
}

/// Leaves the limit of CPU time to the caller, who catches its signal.
pub fn watch_time() {
    TIME_IS_WATCHED.store(true, SeqCst);
}

/// Ends the process at once when its time is up, also if its signal is caught: a worker's line and status are its
/// command's to pass on.
pub fn end_at_once() {
    IS_PART.store(true, SeqCst);
}

extern "C" fn go_on(_: libc::c_int) {}

extern "C" fn out_of_time(_: libc::c_int) {
    if !TIME_IS_WATCHED.load(SeqCst) || IS_PART.load(SeqCst) {
        end(OUT_OF_TIME);
    }
}

/// Ends the process with this line and status 1. Async-signal-safe.
pub(super) fn end(line: &str) -> ! {
    restore_terminal();
    offer(libc::STDERR_FILENO, line.as_bytes());
    offer(libc::STDERR_FILENO, b"\n");
    // SAFETY: a call by number.
    unsafe { libc::_exit(1) }
}

/// Writes what a descriptor takes without a wait.
fn offer(fd: libc::c_int, bytes: &[u8]) {
    // SAFETY: both pointers are live through the calls, which are async-signal-safe (poll is a bare system
    // call on Linux). The write follows a poll for room.
    unsafe {
        let mut to = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        if libc::poll(&mut to, 1, 0) == 1 {
            libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        }
    }
}

/// The terminal has been restored: a fatal signal has nothing to restore.
pub fn disarm() {
    ARMED.store(false, SeqCst);
}

extern "C" fn restore(signal: libc::c_int) {
    restore_terminal();
    // SAFETY: a call by number.
    unsafe { libc::raise(signal) };
}

/// Restores the terminal's modes, if they have been changed. Async-signal-safe.
pub(super) fn restore_terminal() {
    if !ARMED.swap(false, SeqCst) {
        return;
    }
    if ON_OTHER_SCREEN.load(SeqCst) {
        offer(libc::STDOUT_FILENO, LEAVE_SCREEN.as_bytes());
    }
    // SAFETY: armed after `SAVED` was written. The ioctl is a bare system call on Linux; its pointer is live.
    unsafe {
        let saved = (*SAVED.0.get()).as_ptr();
        libc::ioctl(libc::STDIN_FILENO, libc::TCSETS2, saved);
    }
}
