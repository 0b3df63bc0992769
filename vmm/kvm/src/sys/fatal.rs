//! Restores the terminal on signals that end this process at once.

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
    // SAFETY: `SAVED` is written by one thread, once, and read by handlers that are installed
    // after. The sigaction is zeroed and then filled in; the handler makes calls only that are
    // async-signal-safe (signal-safety(7)). A signal that was ignored stays so.
    ONCE.call_once(|| unsafe {
        if libc::ioctl(libc::STDIN_FILENO, libc::TCGETS2, (*SAVED.0.get()).as_mut_ptr()) != 0 {
            return;
        }
        for signal in FATAL.into_iter().filter(|signal| !super::disposition::is_ignored(*signal)) {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = restore as extern "C" fn(libc::c_int) as usize;
            // Reset after the first signal and not blocked meanwhile: raised again, it has its
            // default effect.
            action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    });
    ON_OTHER_SCREEN.store(on_other_screen, SeqCst);
    ARMED.store(true, SeqCst);
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
    // SAFETY: armed after `SAVED` was written. The calls are async-signal-safe, but for poll and ioctl,
    // which are bare system calls on Linux; their pointers are live. The write follows a poll that
    // says that it will not wait.
    unsafe {
        if ON_OTHER_SCREEN.load(SeqCst) {
            let mut stdout =
                libc::pollfd { fd: libc::STDOUT_FILENO, events: libc::POLLOUT, revents: 0 };
            if libc::poll(&mut stdout, 1, 0) == 1 {
                let bytes = LEAVE_SCREEN.as_bytes();
                libc::write(libc::STDOUT_FILENO, bytes.as_ptr().cast(), bytes.len());
            }
        }
        let saved = (*SAVED.0.get()).as_ptr();
        libc::ioctl(libc::STDIN_FILENO, libc::TCSETS2, saved);
    }
}
