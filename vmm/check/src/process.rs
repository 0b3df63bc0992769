//! Programs that are waited for, for a limited time, and that end with this one.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

use os::signals::Interrupt;

/// Pause between two looks at the program.
const LOOK_EVERY: Duration = Duration::from_millis(20);
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
    /// A signal has ended this program, and so that one.
    #[error("ended by a signal")]
    Stopped,
}

/// Runs a program, in a process group of its own. None: it did not end within `limit`, and was killed with all that it had
/// started.
pub fn run(
    mut command: Command,
    limit: Duration,
    stop: &Interrupt,
) -> Result<Option<ExitStatus>, ProcessError> {
    let name = command.get_program().display().to_string();
    let started = command.process_group(0).spawn();
    let mut child = started.map_err(|error| ProcessError::Start(name.clone(), error))?;
    let lost = |error| ProcessError::Wait(name.clone(), error);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            end(&mut child, Signal::KILL);
            return Ok(None);
        }
        if !stop.sleep_until(Instant::now() + LOOK_EVERY) {
            end(&mut child, Signal::TERM);
            return Err(ProcessError::Stopped);
        }
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
        let ended = |script, limit| run(sh(script), Duration::from_millis(limit), &stop).unwrap();
        assert_eq!(ended("exit 3", 10_000).and_then(|status| status.code()), Some(3));
        assert!(ended("trap '' TERM; sleep 60", 100).is_none());
    }

    #[test]
    fn a_program_is_asked_to_end_with_this_one() {
        let stop = Interrupt::with_bell().unwrap();
        stop.raise();
        let began = Instant::now();
        let stopped = run(sh("sleep 60"), Duration::from_secs(60), &stop);
        assert!(matches!(stopped, Err(ProcessError::Stopped)), "{stopped:?}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
