//! Runs each cell in a separate process, for cells that load a scheduler into the host's kernel with their
//! own settings. The process loads the scheduler, then confines itself; this worker runs no guest.

use std::{
    io::{self, BufRead, Write},
    os::fd::AsFd,
    process::{Child, Command, ExitStatus, Stdio},
};

use kvm::sys::spawn::keep_and_die_with_us;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use thiserror::Error;

use super::{super::Interrupt, job_lines};

/// Errors when running the cells' processes.
#[derive(Debug, Error)]
pub enum RelayError {
    /// The process cannot be spawned.
    #[error("cannot start the process of a cell")]
    Spawn(#[source] io::Error),
    /// The process cannot be observed.
    #[error("cannot wait for the process of a cell")]
    Wait(#[source] io::Error),
    /// The jobs cannot be read.
    #[error(transparent)]
    NoReader(#[from] job_lines::NoReader),
}

/// Passes each job of `input` to a process that `command` starts, one after the other. The results go to
/// our stdout. The end of the input and `interrupt` abort the current cell. If a process fails, its status
/// is returned and no further process is started.
pub fn relay(
    command: impl Fn() -> Command,
    input: impl BufRead + Send + 'static,
    interrupt: &Interrupt,
) -> Result<Option<ExitStatus>, RelayError> {
    for line in job_lines::lines(input, interrupt.clone())? {
        let mut command = command();
        keep_and_die_with_us(&mut command, Vec::new());
        let child = command.stdin(Stdio::piped()).spawn().map_err(RelayError::Spawn)?;
        let status = run_child(child, &line, interrupt).map_err(RelayError::Wait)?;
        if !status.success() {
            return Ok(Some(status));
        }
    }
    Ok(None)
}

/// Passes the job to the process, and waits for its end; `interrupt` closes its input.
fn run_child(mut child: Child, job: &[u8], interrupt: &Interrupt) -> io::Result<ExitStatus> {
    let mut input = child.stdin.take();
    if let Some(input) = &mut input {
        // The child may have ended already, as its status then shows.
        let _ = input.write_all(job);
    }
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let stop = interrupt.as_descriptor().unwrap_or(process.as_fd());
    let fds = [process.as_fd(), stop];
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    while let Err(error) = poll(&mut fds, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    // The child has ended, or must end.
    drop(input);
    child.wait()
}

#[cfg(test)]
mod tests {
    use std::{io::Cursor, os::unix::net::UnixStream};

    use super::*;

    fn shell(script: &'static str) -> impl Fn() -> Command {
        move || {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::null());
            command
        }
    }

    #[test]
    fn each_job_runs_in_a_separate_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jobs");
        let command = || {
            let mut command = shell("read job; echo $$ $job >> $FILE")();
            command.env("FILE", &file);
            command
        };
        let interrupt = Interrupt::default();
        assert!(relay(command, Cursor::new("one\ntwo\n"), &interrupt).unwrap().is_none());
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        assert_eq!((lines[0][1], lines[1][1]), ("one", "two"));
        assert_ne!(lines[0][0], lines[1][0]);
    }

    #[test]
    fn failed_process_ends_the_relay() {
        let jobs = Cursor::new("one\ntwo\n");
        let status = relay(shell("read job; exit 9"), jobs, &Interrupt::default()).unwrap();
        assert_eq!(status.and_then(|status| status.code()), Some(9));
    }

    #[test]
    fn end_of_input_ends_the_process() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"one\n").unwrap();
        let interrupt = Interrupt::with_descriptor().unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            drop(ours);
        });
        // The process waits for the end of its input.
        let ends = relay(shell("cat >/dev/null"), std::io::BufReader::new(theirs), &interrupt);
        assert!(ends.unwrap().is_none() && interrupt.raised());
    }
}
