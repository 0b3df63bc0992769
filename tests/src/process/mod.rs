//! Child processes with a time limit; their output is collected as it arrives.

mod output;
mod proc;
mod stopwatch;

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs::File,
    io::Write,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid},
};

use crate::{emulator::Killed, facts, run_result::RunResult};
use output::Collected;
pub use proc::{children, folder, status, thread_named, threads};
pub use stopwatch::{Stopwatch, ThreadTimes, times_by_name};

/// Default time limit of a child, after which it counts as hung. It leaves room for a busy machine: on a
/// quiet one, a child with this limit takes less than a third of it.
const LIMIT: Duration = Duration::from_secs(180);
/// How long other processes may keep a child's output open after the child's end.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the event that [`Running::wait`] waits for.
const END: &str = "end";
/// Time between two polls of a child.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds; fails after `timeout`.
pub fn wait_until(
    what: &str,
    timeout: Duration,
    mut holds: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    while !holds()? {
        ensure!(Instant::now() < deadline, "no {what} in {} s", timeout.as_secs());
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// A child's stdin.
#[derive(Debug)]
pub enum Input {
    /// Nothing: `/dev/null`.
    Null,
    /// These bytes, through a pipe.
    Bytes(Vec<u8>),
    /// A pipe that stays open and empty until the child ends.
    Silence,
    /// This descriptor.
    From(OwnedFd),
}

/// Builds a child process.
#[derive(Debug)]
pub struct Program {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    unset: Vec<OsString>,
    input: Input,
    output: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    limit: Duration,
}

impl Program {
    /// Creates a program without input, with a limit of 180 s and this process's environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            unset: Vec::new(),
            input: Input::Null,
            output: None,
            stdout: None,
            limit: LIMIT,
        }
    }

    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Removes a variable that the child would inherit from this process.
    pub fn unset(mut self, name: &str) -> Self {
        self.unset.push(name.into());
        self
    }

    pub fn input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// Sends its stdout and stderr to this descriptor; nothing is collected.
    pub fn output(mut self, output: OwnedFd) -> Self {
        self.output = Some(output);
        self
    }

    /// Sends its stdout to this descriptor and collects only its stderr.
    pub fn stdout(mut self, stdout: OwnedFd) -> Self {
        self.stdout = Some(stdout);
        self
    }

    /// Starts it from a shell that ignores this signal, as nohup(1) does with SIGHUP.
    pub fn ignoring(self, signal: &str) -> Self {
        self.after(&format!("trap '' {signal}"))
    }

    /// Starts it from a shell, after these commands.
    pub fn after(mut self, words: &str) -> Self {
        let script = format!("{words}; exec \"$0\" \"$@\"");
        let program = std::mem::replace(&mut self.program, "/bin/sh".into());
        let words = ["-c".into(), script.into(), program.into()];
        self.args.splice(0..0, words);
        self
    }

    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Runs it to completion.
    pub fn run(self) -> anyhow::Result<RunResult> {
        self.start()?.wait()
    }

    /// Starts it in a new process group.
    pub fn start(self) -> anyhow::Result<Running> {
        let line = self.line();
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env).process_group(0);
        for name in &self.unset {
            command.env_remove(name);
        }
        let mut bytes = None;
        command.stdin(match self.input {
            Input::Null => Stdio::null(),
            Input::Silence => Stdio::piped(),
            Input::From(fd) => fd.into(),
            Input::Bytes(input) => {
                bytes = Some(input);
                Stdio::piped()
            }
        });
        match (self.output, self.stdout) {
            (Some(output), _) => command.stdout(output.try_clone()?).stderr(output),
            (None, Some(stdout)) => command.stdout(stdout).stderr(Stdio::piped()),
            (None, None) => command.stdout(Stdio::piped()).stderr(Stdio::piped()),
        };
        let mut child = command.spawn().with_context(|| format!("cannot start {line}"))?;
        // Closes our copies of the output's descriptors: a terminal's reader waits until all are closed.
        drop(command);
        if let (Some(bytes), Some(mut pipe)) = (bytes, child.stdin.take()) {
            // Ignores errors: a child need not read all of its input.
            thread::spawn(move || pipe.write_all(&bytes));
        }
        let stdout =
            Collected::from(child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe))));
        let stderr =
            Collected::from(child.stderr.take().map(|pipe| File::from(OwnedFd::from(pipe))));
        Ok(Running {
            child,
            line,
            stdout,
            stderr,
            read: 0,
            deadline: Instant::now() + self.limit,
            ended: false,
        })
    }

    fn line(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        let mut line = name.to_string_lossy().into_owned();
        for word in &self.args {
            let word = word.to_string_lossy();
            let quote = if word.contains([' ', '\n', ';']) { "'" } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(line, " {quote}{word}{quote}");
        }
        line
    }
}

/// A started child. Dropping it kills its process group, unless [`Running::wait`] has returned its output.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: String,
    stdout: Collected,
    stderr: Collected,
    /// Number of bytes of stdout that [`Running::next_line`] has returned.
    read: usize,
    deadline: Instant,
    ended: bool,
}

impl Running {
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.pid(), signal).context("cannot send a signal")
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it has ended; reaps it if so.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait().context("cannot wait")?.is_some())
    }

    /// Waits until its stdout contains this text.
    pub fn wait_for_stdout(&mut self, text: &str) -> anyhow::Result<()> {
        let stdout = self.stdout.clone();
        self.wait_until(&format!("'{text}' on its stdout"), || stdout.contains(text))
    }

    /// Waits until its stderr contains this text.
    pub fn wait_for_stderr(&mut self, text: &str) -> anyhow::Result<()> {
        let stderr = self.stderr.clone();
        self.wait_until(&format!("'{text}' on its stderr"), || stderr.contains(text))
    }

    /// Waits for the next line of its stdout.
    pub fn next_line(&mut self) -> anyhow::Result<String> {
        let (stdout, from) = (self.stdout.clone(), self.read);
        self.wait_until("line on its stdout", || stdout.line(from).is_some())?;
        let line = stdout.line(from).context("the line has gone")?;
        self.read += line.len();
        Ok(line)
    }

    /// Waits until a condition holds; fails if the child ends first.
    pub fn wait_until(&mut self, what: &str, holds: impl Fn() -> bool) -> anyhow::Result<()> {
        loop {
            let ended = self.child.try_wait().context("cannot wait")?;
            if holds() {
                return Ok(());
            }
            if let Some(status) = ended {
                bail!("it ended ({status}) before {what}\n{}", self.output_so_far());
            }
            self.check_deadline(what)?;
            thread::sleep(PAUSE);
        }
    }

    fn check_deadline(&self, what: &str) -> anyhow::Result<()> {
        if Instant::now() <= self.deadline {
            return Ok(());
        }
        let hung = format!("hung, killed: no {what} within its time");
        let error = format!("{hung}\n{}", self.output_so_far());
        match what {
            // The product's own watchdog ends a machine whose vCPUs all wait, so a vCPU of this machine ran.
            END if facts::is_emulated() => Err(anyhow::Error::new(Killed(hung)).context(error)),
            _ => bail!(error),
        }
    }

    fn output_so_far(&self) -> String {
        RunResult::describe(&self.line, &self.stdout.bytes(), &self.stderr.bytes())
    }

    /// Samples `watch` until the child has ended, without reaping it. Fails `timeout` of wall-clock time
    /// after the stopwatch was started.
    pub fn wait_by(&mut self, watch: &mut Stopwatch, timeout: Duration) -> anyhow::Result<()> {
        while !self.has_exited()? {
            ensure!(
                watch.elapsed() < timeout,
                "no end in {} s\n{}",
                timeout.as_secs(),
                self.output_so_far()
            );
            watch.sample();
            thread::sleep(PAUSE);
        }
        watch.sample();
        Ok(())
    }

    /// Whether the child has ended. Does not reap it, so that its accounts in /proc remain.
    fn has_exited(&self) -> anyhow::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid()), options) {
            Ok(status) => Ok(status.is_some()),
            // The child has been reaped.
            Err(Errno::CHILD) => Ok(true),
            Err(error) => Err(error).context("cannot wait"),
        }
    }

    /// Waits until the child has ended and its output is closed.
    pub fn wait(self) -> anyhow::Result<RunResult> {
        self.wait_watching(|_| Ok(()))
    }

    /// Like [`Self::wait`], but calls `poll` until the child has ended. An error of `poll` kills the child.
    pub fn wait_watching(
        mut self,
        mut poll: impl FnMut(Pid) -> anyhow::Result<()>,
    ) -> anyhow::Result<RunResult> {
        let status = loop {
            if let Some(status) = self.child.try_wait().context("cannot wait")? {
                break status;
            }
            poll(self.pid()).with_context(|| self.output_so_far())?;
            self.check_deadline(END)?;
            thread::sleep(PAUSE);
        };
        self.collect(status)
    }

    fn collect(&mut self, status: ExitStatus) -> anyhow::Result<RunResult> {
        let is_closed = || Ok(self.stdout.has_ended() && self.stderr.has_ended());
        if wait_until("end of the output", OUTPUT_TIMEOUT, is_closed).is_err() {
            bail!("it ended ({status}), but left a process behind\n{}", self.output_so_far());
        }
        self.ended = true;
        let (stdout, stderr) = (self.stdout.bytes(), self.stderr.bytes());
        Ok(RunResult::new(self.line.clone(), status, stdout, stderr))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
