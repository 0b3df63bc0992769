//! The scheduling class of threads: the only unsafe code of this crate.

use std::{ffi::c_int, io};

/// Puts the calling thread under the loaded scheduler by changing its class to `SCHED_EXT`.
pub(crate) fn change() -> io::Result<()> {
    /// include/uapi/linux/sched.h
    const SCHED_EXT: c_int = 7;
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters during the call.
    match unsafe { libc::sched_setscheduler(0, SCHED_EXT, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
