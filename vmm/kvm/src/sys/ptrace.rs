//! Attaching to another process, for drills of the confinement.

use std::{io, ptr};

use rustix::process::Pid;

/// Attaches to this process as a debugger does (ptrace(2), `PTRACE_SEIZE`, which does not stop it).
pub fn attach(process: Pid) -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: seizing passes no memory; the addresses are null.
    let result =
        unsafe { libc::ptrace(libc::PTRACE_SEIZE, process.as_raw_nonzero().get(), none, none) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
