//! Child processes that inherit more than stdio and do not outlive this process.

use std::{
    io,
    os::{
        fd::{BorrowedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
};

/// Makes `command` inherit the descriptors `keep` (under their own numbers), and be killed when the
/// thread that spawns it ends, however it ends (prctl(2), PR_SET_PDEATHSIG).
///
/// The descriptors must be open when the command is spawned; otherwise spawning fails with EBADF.
pub fn keep_and_die_with_us(command: &mut Command, keep: Vec<RawFd>) {
    let parent = getpid();
    let before_exec = move || {
        for fd in &keep {
            // SAFETY: the number is used for this one call, which fails on a closed descriptor.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the request was made.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes bare system calls only: no allocation, no
    // lock, no libc state.
    unsafe { command.pre_exec(before_exec) };
}
