//! Programs that are waited for, for a limited time, and that end with this one.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

use crate::host_time::{HostTime, HostWatch};
use os::signals::Interrupt;

/// Pause between two looks at the program.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A longer pause between two looks counts for this much: the host stood still.
const LONGEST_LOOK: Duration = Duration::from_millis(100);
/// A program that is asked to end has this long.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Why a program's end is not known.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// It was not started.
    #[error("cannot start {0}")]
    Start(String, #[source] io::Error),
    /// It was lost.
    #[error("cannot wait for {0}")]
    Wait(String, #[source] io::Error),
    /// Somebody stopped it and did not let it go on.
    #[error("{0} was stopped or frozen for {1} s")]
    Held(String, u64),
    /// A signal has ended this program, and so that one.
    #[error("ended by a signal")]
    Stopped,
}

/// How a program ended.
#[derive(Debug)]
pub struct Exit {
    /// None: it did not end within its time, and was killed with all that it had started.
    pub status: Option<ExitStatus>,
    /// Host time taken from it.
    pub host: HostTime,
}

/// Runs a program in a new process group; its threads share `slots` CPUs. Time in which the host stood still, or the program
/// was stopped, does not count towards `limit`.
pub fn run(
    mut command: Command,
    limit: Duration,
    slots: u32,
    stop: &Interrupt,
) -> Result<Exit, ProcessError> {
    let name = command.get_program().display().to_string();
    let started = command.process_group(0).spawn();
    let mut child = started.map_err(|error| ProcessError::Start(name.clone(), error))?;
    let waited = HostWatch::start(child.id(), slots)
        .map_err(|error| ProcessError::Start("a thread".into(), error))
        .and_then(|watch| {
            let status = wait(&mut child, &name, limit, &watch, stop)?;
            Ok(Exit { status, host: watch.end() })
        });
    let signal = match &waited {
        Ok(Exit { status: Some(_), .. }) => return waited,
        Ok(_) | Err(ProcessError::Held(..)) => Signal::KILL,
        Err(_) => Signal::TERM,
    };
    end(&mut child, signal);
    waited
}

/// Waits for the end. None: `limit` is over.
fn wait(
    child: &mut Child,
    name: &str,
    limit: Duration,
    watch: &HostWatch,
    stop: &Interrupt,
) -> Result<Option<ExitStatus>, ProcessError> {
    let (mut passed, mut held) = (Duration::ZERO, Duration::ZERO);
    let mut looked = Instant::now();
    loop {
        let lost = |error| ProcessError::Wait(name.to_owned(), error);
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(Some(status));
        }
        if passed >= limit {
            return Ok(None);
        }
        if held >= limit {
            return Err(ProcessError::Held(name.to_owned(), held.as_secs()));
        }
        if !stop.sleep_until(Instant::now() + LOOK_EVERY) {
            return Err(ProcessError::Stopped);
        }
        let step = looked.elapsed().min(LONGEST_LOOK);
        looked = Instant::now();
        let spent = if watch.is_held() { &mut held } else { &mut passed };
        *spent = spent.saturating_add(step);
    }
}

/// Ends its whole group.
fn end(child: &mut Child, signal: Signal) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // The child has not been waited for, so the number is its own.
    let kill = |signal| group.map(|group| kill_process_group(group, signal));
    let _ = kill(signal);
    let patience = Instant::now() + ENDS_WITHIN;
    while Instant::now() < patience && child.try_wait().is_ok_and(|status| status.is_none()) {
        std::thread::sleep(LOOK_EVERY);
    }
    if child.try_wait().is_ok_and(|status| status.is_none()) {
        let _ = kill(Signal::KILL);
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

    /// Regression: the time in which a guest was frozen counted, and its kernel hung.
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
