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

/// Limit of the time counted for a sleep. After a longer sleep, the host stood still.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Time between SIGTERM and SIGKILL.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The exit status of a program is not known.
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
    Held(String, u64),
    /// This process was ended by a signal, and ended the program.
    #[error("ended by a signal")]
    Stopped,
}

/// The outcome of a program.
#[derive(Debug)]
pub struct Exit {
    /// None after a timeout: the program's process group was killed.
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
    let started = command.process_group(0).spawn();
    let mut child = started.map_err(|error| ProcessError::Start(name.clone(), error))?;
    let mut watch = HostWatch::start(child.id(), slots);
    let waited = wait(&mut child, name, limit, &mut watch, stop);
    let host = watch.end();
    match &waited {
        Ok(Some(_)) => {}
        Ok(None) | Err(ProcessError::Held(..)) => end(&mut child, Signal::KILL),
        Err(_) => end(&mut child, Signal::TERM),
    }
    Ok(Exit { status: waited?, host })
}

/// Waits for the program's exit. Returns None at the time limit.
fn wait(
    child: &mut Child,
    name: String,
    limit: Duration,
    watch: &mut HostWatch,
    stop: &Interrupt,
) -> Result<Option<ExitStatus>, ProcessError> {
    let (mut passed, mut held) = (Duration::ZERO, Duration::ZERO);
    while passed < limit {
        match child.try_wait() {
            Ok(None) => {}
            Ok(ended) => return Ok(ended),
            Err(error) => return Err(ProcessError::Wait(name, error)),
        }
        if held >= limit {
            return Err(ProcessError::Held(name, held.as_secs()));
        }
        let began = Instant::now();
        if !stop.sleep_until(began + SLEEP) {
            return Err(ProcessError::Stopped);
        }
        let slept = began.elapsed();
        watch.slept(slept);
        let spent = if watch.is_held() { &mut held } else { &mut passed };
        *spent += slept.min(LONGEST_SLEEP);
    }
    Ok(None)
}

/// Ends the program's process group: by `signal`, and by SIGKILL after [`ENDS_WITHIN`].
fn end(child: &mut Child, signal: Signal) {
    signal_group(child.id(), signal);
    let patience = Instant::now() + ENDS_WITHIN;
    let runs = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_none());
    while Instant::now() < patience && runs(child) {
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
    fn a_program_that_does_not_end_is_killed() {
        let stop = Interrupt::never();
        let ended =
            |script, limit| run(sh(script), Duration::from_millis(limit), 1, &stop).unwrap().status;
        assert_eq!(ended("exit 3", 600_000).and_then(|status| status.code()), Some(3));
        assert!(ended("trap '' TERM; sleep 60", 100).is_none());
    }

    /// Regression: time in which a guest was frozen counted, so that its kernel seemed to hang.
    #[test]
    fn a_program_that_is_stopped_has_not_hung() {
        let stop = Interrupt::never();
        let stopped = run(sh("kill -STOP $$"), Duration::from_secs(2), 1, &stop);
        assert!(matches!(stopped, Err(ProcessError::Held(..))), "{stopped:?}");
        let resumed = sh("me=$$; (sleep 1; kill -CONT $me) & kill -STOP $$; wait; exit 4");
        let ended = run(resumed, Duration::from_secs(60), 1, &stop).unwrap();
        let code = ended.status.and_then(|status| status.code());
        assert!(code == Some(4) && ended.host.is_much(), "{ended:?}");
    }

    #[test]
    fn a_program_is_asked_to_end_with_this_one() {
        let stop = Interrupt::with_bell().unwrap();
        stop.raise();
        let began = Instant::now();
        let stopped = run(sh("sleep 600"), Duration::from_secs(600), 1, &stop);
        assert!(matches!(stopped, Err(ProcessError::Stopped)), "{stopped:?}");
        assert!(began.elapsed() < Duration::from_secs(300));
    }
}
