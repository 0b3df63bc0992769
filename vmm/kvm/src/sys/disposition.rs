//! Signal dispositions.

use std::{mem, ptr};

/// Whether the signal is ignored now, for example since before startup (nohup(1)).
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: a zeroed sigaction is valid as an output buffer and is live through the call,
    // which sets no new action. An invalid signal number makes the call fail.
    unsafe {
        let mut now: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}
