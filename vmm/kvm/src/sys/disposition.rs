//! Queries and sets the dispositions of signals.

use std::{mem, ptr};

/// Was the signal ignored when this process was started, and is it still?
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: a zeroed sigaction is a valid one to write over; no new action is set, and the
    // pointer is live through the call. A number that is no signal makes it fail.
    unsafe {
        let mut now: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}
