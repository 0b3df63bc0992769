//! The result of a finished child, and expectations on it.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use crate::{
    emulator::{self, Killed},
    facts, log,
    prelude::*,
    unlisted_calls,
};

/// Maximum bytes of each stream that a failed test prints.
const MAX_SHOWN: usize = 4000;

/// A finished child.
#[derive(Debug)]
pub struct RunResult {
    line: String,
    status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl RunResult {
    pub(crate) fn new(line: String, status: ExitStatus, stdout: Vec<u8>, stderr: Vec<u8>) -> Self {
        let ran = Self { line, status, stdout, stderr };
        unlisted_calls::note(&ran.line, &ran.stderr);
        log::add(&format!("{}\n--- {status}", ran.full_text()));
        ran
    }

    /// Returns the child's command line and all of its output.
    fn full_text(&self) -> String {
        Self::format(&self.line, &self.stdout, &self.stderr, usize::MAX)
    }

    /// Formats a command line and the end of its output.
    pub(crate) fn describe(line: &str, stdout: &[u8], stderr: &[u8]) -> String {
        Self::format(line, stdout, stderr, MAX_SHOWN)
    }

    fn format(line: &str, stdout: &[u8], stderr: &[u8], limit: usize) -> String {
        let mut text = format!("$ {line}");
        for (name, bytes) in [("stdout", stdout), ("stderr", stderr)] {
            let from = bytes.len().saturating_sub(limit);
            let cut = if from > 0 { " (its end)" } else { "" };
            let tail = String::from_utf8_lossy(&bytes[from..]);
            text += &format!("\n--- {name}{cut}\n{}", tail.trim_end());
        }
        if emulator::stale_breakpoint(&String::from_utf8_lossy(stderr)) {
            text += &format!("\n--- {}", emulator::STALE_BREAKPOINT);
        }
        text
    }

    /// Returns the child's command line and output, for an error message.
    pub fn show(&self) -> String {
        Self::describe(&self.line, &self.stdout, &self.stderr)
    }

    /// Expects this exit status.
    pub fn exits(self, status: i32) -> anyhow::Result<Self> {
        if self.status.code() == Some(status) {
            return Ok(self);
        }
        let error = format!("{} instead of exit status {status}\n{}", self.status, self.show());
        let errors = self.errors();
        let guest = emulator::end_of_guest(&errors).filter(|_| facts::emulates_guests());
        match guest.or_else(|| emulator::end_of_host(&errors)) {
            Some(end) => Err(anyhow::Error::new(Killed(end.to_owned())).context(error)),
            None => bail!(error),
        }
    }

    /// Returns the status as a shell reports it: 128 plus the number of the signal that ended the child,
    /// if any.
    pub fn shell_status(&self) -> Option<i32> {
        self.status.code().or_else(|| self.status.signal().map(|signal| 128 + signal))
    }

    /// Returns the child's exit status; fails if a signal ended it.
    pub fn status(&self) -> anyhow::Result<i32> {
        match self.status.signal() {
            Some(signal) => bail!("ended by signal {signal}\n{}", self.show()),
            None => self.status.code().context("neither status nor signal"),
        }
    }

    /// Expects exactly this on stdout.
    pub fn stdout_is(self, text: &str) -> anyhow::Result<Self> {
        ensure!(self.stdout == text.as_bytes(), "stdout is not {text:?}\n{}", self.show());
        Ok(self)
    }

    /// Returns the child's stdout as text.
    pub fn text(&self) -> anyhow::Result<&str> {
        std::str::from_utf8(&self.stdout).with_context(|| format!("not text\n{}", self.show()))
    }

    /// Expects all of these in stdout.
    pub fn stdout_has(&self, parts: &[&str]) -> anyhow::Result<()> {
        let text = self.text()?;
        for part in parts {
            ensure!(text.contains(part), "stdout has no {part:?}\n{}", self.show());
        }
        Ok(())
    }

    /// Returns the child's stdout with all whitespace collapsed to single spaces.
    pub fn words(&self) -> anyhow::Result<String> {
        Ok(self.text()?.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Expects nothing on stderr.
    pub fn no_stderr(self) -> anyhow::Result<Self> {
        ensure!(self.stderr.is_empty(), "stderr is not empty\n{}", self.show());
        Ok(self)
    }

    /// Parses the child's stdout as JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.stdout).with_context(|| self.show())
    }

    /// Returns the child's stderr as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Expects all of these in stderr, and no panic.
    pub fn stderr_has(self, parts: &[&str]) -> anyhow::Result<Self> {
        let errors = self.errors();
        for part in parts {
            ensure!(errors.contains(part), "stderr has no {part:?}\n{}", self.show());
        }
        ensure!(!errors.contains("panicked at"), "it panicked\n{}", self.show());
        Ok(self)
    }

    /// Expects this exit status, and stderr as in [`Self::one_line`].
    pub fn fails(self, status: i32, parts: &[&str]) -> anyhow::Result<Self> {
        self.exits(status)?.one_line(parts)
    }

    /// Expects stderr to be one line that begins with `pvticket: ` and contains all of these.
    pub fn one_line(self, parts: &[&str]) -> anyhow::Result<Self> {
        let ran = self.stderr_has(parts)?;
        let errors = ran.errors();
        ensure!(
            errors.starts_with("pvticket: ")
                && errors.ends_with('\n')
                && errors.trim_end().lines().count() == 1,
            "stderr is not one line of the product\n{}",
            ran.show()
        );
        Ok(ran)
    }
}
