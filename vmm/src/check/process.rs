//! Child processes with a time limit, which end with this process.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use thiserror::Error;

use crate::check::host_time::{HostTime, HostWatch, SLEEP};
use os::{processes::signal_group, signals::Interrupt};

/// Limit of the time counted for a sleep. In a longer sleep, the host stood still.
const MAX_COUNTED_SLEEP: Duration = Duration::from_millis(100);
/// Time between SIGTERM and SIGKILL.
const TERM_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why a program's exit status is unknown.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// The program could not be started.
    #[error("cannot start {0}")]
    Start(String, #[source] io::Error),
    /// The wait failed.
    #[error("cannot wait for {0}")]
    Wait(String, #[source] io::Error),
    /// The program was stopped or frozen for this many seconds, and not resumed.
    #[error("{0} was stopped or frozen for {1} s")]
    Frozen(String, u64),
    /// This process was ended by a signal, and ended the program.
    #[error("ended by a signal")]
    Interrupted,
}

/// The outcome of a program.
#[derive(Debug)]
pub struct Exit {
    /// `None` after a timeout: the program's process group was killed.
    pub status: Option<ExitStatus>,
    /// Host time taken from the program.
    pub host: HostTime,
}

/// Runs a program in a new process group; its threads share `slots` CPUs. Time in which the host stood still,
/// or the program was stopped, does not count towards `limit`.
pub fn run(
    mut command: Command,
    limit: Duration,
    slots: u32,
    stop: &Interrupt,
) -> Result<Exit, ProcessError> {
    let name = command.get_program().display().to_string();
    let child = command.process_group(0).spawn();
    let mut child = child.map_err(|error| ProcessError::Start(name.clone(), error))?;
    let mut watch = HostWatch::start(child.id(), slots);
    let result = wait(&mut child, name, limit, &mut watch, stop);
    let host = watch.end();
    match &result {
        Ok(Some(_)) => {}
        Ok(None) | Err(ProcessError::Frozen(..)) => terminate(&mut child, Signal::KILL),
        Err(_) => terminate(&mut child, Signal::TERM),
    }
    Ok(Exit { status: result?, host })
}

/// Waits for the program's exit. Returns `None` at the time limit.
fn wait(
    child: &mut Child,
    name: String,
    limit: Duration,
    watch: &mut HostWatch,
    stop: &Interrupt,
) -> Result<Option<ExitStatus>, ProcessError> {
    let (mut elapsed, mut frozen) = (Duration::ZERO, Duration::ZERO);
    while elapsed < limit {
        match child.try_wait() {
            Ok(None) => {}
            Ok(status) => return Ok(status),
            Err(error) => return Err(ProcessError::Wait(name, error)),
        }
        if frozen >= limit {
            return Err(ProcessError::Frozen(name, frozen.as_secs()));
        }
        let start = Instant::now();
        if !stop.sleep_until(start + SLEEP) {
            return Err(ProcessError::Interrupted);
        }
        let slept = start.elapsed();
        watch.record_sleep(slept);
        let spent = if watch.is_stopped() { &mut frozen } else { &mut elapsed };
        *spent += slept.min(MAX_COUNTED_SLEEP);
    }
    Ok(None)
}

/// Ends the program's process group: by `signal`, and by SIGKILL after [`TERM_TIMEOUT`].
fn terminate(child: &mut Child, signal: Signal) {
    signal_group(child.id(), signal);
    let deadline = Instant::now() + TERM_TIMEOUT;
    let runs = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_none());
    while Instant::now() < deadline && runs(child) {
        std::thread::sleep(SLEEP);
    }
    if runs(child) {
        signal_group(child.id(), Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn program_is_killed_at_its_limit() {
        let stop = Interrupt::never();
        let status =
            |script, limit| run(sh(script), Duration::from_millis(limit), 1, &stop).unwrap().status;
        assert_eq!(status("exit 3", 600_000).and_then(|status| status.code()), Some(3));
        assert!(status("trap '' TERM; sleep 60", 100).is_none());
    }

    /// Regression: time in which a guest was frozen counted, so that its kernel seemed to hang.
    #[test]
    fn stopped_program_is_not_a_timeout() {
        let stop = Interrupt::never();
        let stopped = run(sh("kill -STOP $$"), Duration::from_secs(2), 1, &stop);
        assert!(matches!(stopped, Err(ProcessError::Frozen(..))), "{stopped:?}");
        let resumed = sh("me=$$; (sleep 1; kill -CONT $me) & kill -STOP $$; wait; exit 4");
        let exit = run(resumed, Duration::from_secs(60), 1, &stop).unwrap();
        let code = exit.status.and_then(|status| status.code());
        assert!(code == Some(4) && exit.host.is_much(), "{exit:?}");
    }

    #[test]
    fn interrupt_terminates_program() {
        let stop = Interrupt::with_descriptor().unwrap();
        stop.raise();
        let start = Instant::now();
        let stopped = run(sh("sleep 600"), Duration::from_secs(600), 1, &stop);
        assert!(matches!(stopped, Err(ProcessError::Interrupted)), "{stopped:?}");
        assert!(start.elapsed() < Duration::from_secs(300));
    }
}
