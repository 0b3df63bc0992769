//! The calling thread: its scheduling class, the only unsafe code of this crate, and its descriptor.

use std::{ffi::c_int, fs, io, os::fd::OwnedFd};

use rustix::{
    process::{PidfdFlags, pidfd_open},
    thread::gettid,
};

/// Opens the calling thread. Fails before Linux 6.9.
pub(crate) fn open_this_thread() -> io::Result<OwnedFd> {
    /// `PIDFD_THREAD` (include/uapi/linux/pidfd.h): a thread, not its process.
    const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);
    Ok(pidfd_open(gettid(), THREAD)?)
}

/// Whether the IDs of threads are the kernel's own, which they are in the initial PID namespace.
pub(crate) fn has_kernel_ids() -> bool {
    /// `PROC_PID_INIT_INO` (include/linux/proc_ns.h).
    const INITIAL: &str = "pid:[4026531836]";
    fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace.as_os_str() == INITIAL)
}

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
