//! Starts processes and collects their exit status.

use alloc::vec::Vec;
use core::{ffi::CStr, ptr};

use guest_init::{
    errors::{FailedStep, NotRun},
    lists,
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    process::{Pid, WaitOptions, WaitStatus, wait},
};

use crate::{
    filesystems, report,
    syscall::{self, SignalSet},
};

/// The error of a wait for a process.
pub const WAIT_FAILED: &str = "cannot wait for it";

/// The environment of the processes that init starts.
struct Environment(Vec<Vec<u8>>);

impl Environment {
    /// PATH, HOME and TERM, overridden by `/pvticket/env`.
    fn new() -> Self {
        let defaults = [
            [b"PATH=", lists::SEARCH_PATH.as_bytes()].concat(),
            b"HOME=/".to_vec(),
            b"TERM=linux".to_vec(),
        ];
        let mut environment = Self(defaults.into());
        let overrides = filesystems::read(c"/pvticket/env").unwrap_or_default();
        for item in lists::items(&overrides) {
            environment.set(item.to_bytes());
        }
        for item in &mut environment.0 {
            item.push(0);
        }
        environment
    }

    fn set(&mut self, item: &[u8]) {
        let name = |item: &[u8]| item.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
        self.0.retain(|old| name(old) != name(item));
        self.0.push(item.to_vec());
    }
}

/// Starts a process like [`spawn`] and waits for its end; returns its status.
pub fn run(argv: &[&CStr], prepare: impl FnOnce() -> Result<(), Errno>) -> Result<i32, FailedStep> {
    let pid = spawn(argv, prepare)?;
    reap(pid, true).ok_or(Errno::CHILD).map_err(FailedStep::when(WAIT_FAILED))
}

/// Forks a child, which runs `prepare` and then executes `argv[0]`.
pub fn spawn(
    argv: &[&CStr],
    prepare: impl FnOnce() -> Result<(), Errno>,
) -> Result<Pid, FailedStep> {
    let environment = Environment::new();
    let forked = syscall::fork().map_err(FailedStep::when("cannot create a process"))?;
    if let Some(child) = forked {
        return Ok(child);
    }
    let error = match prepare() {
        Ok(()) => exec(argv, &environment),
        Err(error) => error,
    };
    syscall::exit(report_failure(argv[0], error))
}

/// Tries the candidate paths; returns only on failure. As in execvp, a file without execute
/// permission does not end the search, but determines the error.
fn exec(argv: &[&CStr], environment: &Environment) -> Errno {
    syscall::block_signals(SignalSet::NONE);
    let pointers: Vec<*const u8> =
        argv.iter().map(|word| word.as_ptr().cast()).chain([ptr::null()]).collect();
    let envp: Vec<*const u8> =
        environment.0.iter().map(|item| item.as_ptr()).chain([ptr::null()]).collect();
    let mut outcome = Errno::NOENT;
    for (directory, name) in lists::candidates(argv[0].to_bytes()) {
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        let path = [directory, slash, name, b"\0"].concat();
        // SAFETY: all strings end with NUL, both lists with a null pointer.
        match unsafe { syscall::execve(path.as_ptr(), &pointers, &envp) } {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => outcome = Errno::ACCESS,
            error => return error,
        }
    }
    outcome
}

/// Prints the error; returns the exit status.
fn report_failure(name: &CStr, error: Errno) -> i32 {
    let failed = NotRun { name: name.to_str().unwrap_or("(not UTF-8)"), error };
    report::error(format_args!("{failed}"));
    failed.status()
}

/// Reaps ended children, including orphans, until no more have ended or, with `block`, until
/// `child` has ended. Returns the status of `child` if it has been reaped.
pub fn reap(child: Pid, block: bool) -> Option<i32> {
    let options = if block { WaitOptions::empty() } else { WaitOptions::NOHANG };
    let mut exit_status = None;
    loop {
        match wait(options) {
            Ok(Some((pid, status))) if pid == child => exit_status = Some(status_of(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return exit_status,
        }
        if block && exit_status.is_some() {
            return exit_status;
        }
    }
}

/// The status that a shell reports.
fn status_of(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 255,
    }
}

/// Installs these file descriptors as stdin, stdout and stderr.
pub fn set_standard(stdin: &OwnedFd, stdout: &OwnedFd, stderr: &OwnedFd) -> Result<(), Errno> {
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)
}
