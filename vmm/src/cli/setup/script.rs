//! Runs a setup script and shows its output line by line.

use std::{
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use thiserror::Error;

use base::io_errors::start_error;
use os::{processes::signal_group, signals::Interrupt};

/// Interval of checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of SIGTERMs. A child forked by a shell has the shell's handlers, which lose the signal, until it
/// executes a program.
const TERM_INTERVAL: Duration = Duration::from_secs(1);

/// A script failed. Its output has the reason.
#[derive(Debug, Error)]
pub(super) enum ScriptError {
    #[error("cannot run {program} {script}")]
    Start { program: &'static str, script: &'static str, source: io::Error },
    #[error("failed ({0}), see above")]
    Failed(std::process::ExitStatus),
}

/// A call of a script.
#[derive(Debug, Clone)]
pub(super) struct Script {
    shell: &'static str,
    file: &'static str,
    argument: Option<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Script {
    pub(super) const fn new(shell: &'static str, file: &'static str) -> Self {
        Self { shell, file, argument: None, variables: Vec::new() }
    }

    pub(super) const fn argument(mut self, argument: &'static str) -> Self {
        self.argument = Some(argument);
        self
    }

    pub(super) fn env(mut self, variable: &'static str, value: &'static str) -> Self {
        self.variables.push((variable, value));
        self
    }

    /// Runs the script in `folder`. `show` gets each line of output; `tick` is called regularly. If `stop` is
    /// raised, the script's process group gets SIGTERM, and the result is Ok.
    pub(super) fn run(
        &self,
        folder: &Path,
        stop: &Interrupt,
        show: &dyn Fn(&str),
        tick: &dyn Fn(),
    ) -> Result<(), ScriptError> {
        let failed = |source| ScriptError::Start { program: self.shell, script: self.file, source };
        let (mut child, output) = self.start(folder).map_err(failed)?;
        let (send, lines) = mpsc::channel();
        let read = move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        };
        if let Err(error) = thread::Builder::new().spawn(read) {
            signal_group(child.id(), Signal::TERM);
            let _ = child.wait();
            return Err(failed(error));
        }
        let mut sent: Option<Instant> = None;
        loop {
            match lines.recv_timeout(POLL_INTERVAL) {
                Ok(line) => show(&line),
                Err(RecvTimeoutError::Timeout) => {}
                // All writers have closed the pipe.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            tick();
            if stop.raised() && sent.is_none_or(|sent| sent.elapsed() >= TERM_INTERVAL) {
                sent = Some(Instant::now());
                signal_group(child.id(), Signal::TERM);
            }
        }
        match child.wait().map_err(failed)? {
            status if status.success() || stop.raised() => Ok(()),
            status => Err(ScriptError::Failed(status)),
        }
    }

    /// Starts the script in a new process group, with both output streams on one pipe.
    fn start(&self, folder: &Path) -> io::Result<(Child, io::PipeReader)> {
        let (output, input) = io::pipe()?;
        let mut command = Command::new(self.shell);
        command
            .arg(folder.join(self.file))
            .args(self.argument)
            .envs(self.variables.iter().copied());
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).process_group(0);
        Ok((command.spawn().map_err(start_error)?, output))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, fs};

    use super::*;

    fn run(text: &str, stop: &Interrupt) -> (Result<(), ScriptError>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("it.sh"), text).unwrap();
        let lines = RefCell::new(Vec::new());
        let script = Script::new("sh", "it.sh").argument("one").env("NAME", "value");
        let result = script.run(
            folder.path(),
            stop,
            &|line| lines.borrow_mut().push(line.to_owned()),
            &|| {},
        );
        (result, lines.into_inner())
    }

    #[test]
    fn both_streams_are_shown_and_status_is_checked() {
        let (result, lines) = run("echo $NAME; echo $1 >&2", &Interrupt::never());
        assert_eq!(lines, ["value", "one"]);
        assert!(result.is_ok());
        let (result, lines) = run("echo why >&2; exit 3", &Interrupt::never());
        assert_eq!(lines, ["why"]);
        assert!(result.unwrap_err().to_string().contains("exit status: 3"));
    }

    #[test]
    fn interrupt_ends_script_and_children() {
        let stop = Interrupt::never();
        stop.raise();
        let start = std::time::Instant::now();
        assert!(run("sleep 600 & sleep 600", &stop).0.is_ok());
        assert!(start.elapsed() < Duration::from_secs(300));
    }

    /// Regression: SIGTERM was sent once, and a program that had lost it kept the output open.
    #[test]
    fn sigterm_is_repeated() {
        let stop = Interrupt::never();
        let text = "(trap 'trap - TERM' TERM; echo; while :; do sleep 0.01; done) & \
                    trap 'exit 9' TERM; while :; do wait; done";
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("it.sh"), text).unwrap();
        let script = Script::new("sh", "it.sh");
        assert!(script.run(folder.path(), &stop, &|_| stop.raise(), &|| {}).is_ok());
    }
}
