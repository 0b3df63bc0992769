//! Attaches to another process, to test the confinement.

use std::{io, ptr};

use rustix::process::Pid;

/// Attaches to a process like a debugger (ptrace(2), `PTRACE_SEIZE`, which does not stop it).
pub fn attach(process: Pid) -> io::Result<()> {
    let null = ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_SEIZE accesses no memory; the addresses are null.
    let result =
        unsafe { libc::ptrace(libc::PTRACE_SEIZE, process.as_raw_nonzero().get(), null, null) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
