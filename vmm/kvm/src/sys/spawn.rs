//! Child processes that inherit more than stdio and do not outlive this process.

use std::{
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{
        Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal,
        setrlimit,
    },
    thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs},
};

/// Makes `command` inherit only stdio and the descriptors `keep`, under the same numbers, and makes the
/// kernel kill it when the thread that spawns it ends (prctl(2), PR_SET_PDEATHSIG).
///
/// The descriptors must be open when the command is spawned; otherwise spawning fails with EBADF.
pub fn keep_and_die_with_us(command: &mut Command, keep: Vec<RawFd>) {
    let parent = getpid();
    let before_exec = move || {
        close_all_at_exec();
        for fd in &keep {
            // SAFETY: the number is used for a single call, which fails on a closed descriptor.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before this call.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes only bare system calls: no allocation, no locks, no
    // libc state.
    unsafe { command.pre_exec(before_exec) };
}

/// Sets close-on-exec on all descriptors except the standard streams, including inherited ones. No effect on
/// kernels before 5.11.
fn close_all_at_exec() {
    // SAFETY: takes no pointers and closes nothing in this process.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            libc::STDERR_FILENO + 1,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// Placeholder in filters for the child's own process id, which is unknown before the child exists. No
/// process has this id (PID_MAX_LIMIT is 4194304).
pub const OWN_PID: u32 = 0x7fff_fffe;

/// BPF_JMP | BPF_JEQ | BPF_K
const IF_EQUAL: u16 = 0x15;

/// Adds a system call filter to the calling thread (seccomp(2), SECCOMP_SET_MODE_FILTER).
fn restrict_calls(filter: &mut [libc::sock_filter]) -> io::Result<()> {
    if filter.is_empty() {
        return Ok(());
    }
    let pid = getpid().as_raw_pid() as u32;
    for step in filter.iter_mut().filter(|step| (step.code, step.k) == (IF_EQUAL, OWN_PID)) {
        step.k = pid;
    }
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program, which outlives the call, and checks it.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restrictions of a confined process.
#[derive(Debug)]
pub struct ChildLimits {
    /// A Landlock ruleset of the files that it may open; None where the kernel has no Landlock.
    pub files: Option<OwnedFd>,
    /// Address space limit in bytes.
    pub memory: u64,
    /// A system call filter; empty where the kernel has no seccomp. It must permit execve(2). [`OWN_PID`]
    /// in comparisons is replaced by the child's process id.
    pub calls: Vec<libc::sock_filter>,
}

/// Confines `command` from its start: no capabilities and no way to gain any, no core dumps, no writes to
/// regular files, and the limits of `child`. Must be called after [`keep_and_die_with_us`].
pub fn confine(command: &mut Command, mut child: ChildLimits) {
    let limits = [(Resource::Core, 0), (Resource::Fsize, 0), (Resource::As, child.memory)];
    let before_exec = move || {
        for (resource, limit) in limits {
            let maximum = getrlimit(resource).maximum;
            let limit = Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
            setrlimit(resource, Rlimit { current: limit, maximum: limit })?;
        }
        set_no_new_privs(true)?;
        let none = CapabilitySet::empty();
        let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, none)?;
        restrict_calls(&mut child.calls)?;
        if let Some(files) = &child.files {
            // SAFETY: takes no pointers.
            let result = unsafe {
                libc::syscall(libc::SYS_landlock_restrict_self, files.as_raw_fd(), 0_u32)
            };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(before_exec) };
}
