//! Boots of the kernel under test, each by a `pvticket boot` of its own, and what they leave.

use std::{
    env,
    fs::File,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde_json::Value;

use crate::{CannotTell, process};
use base::{backend::PvBackend, files, units::ByteSize};
use os::signals::Interrupt;

/// Exit status of a test's script for a kernel that does not have what it tests.
pub const LACKING: i32 = 77;
/// The lines of a guest's log that a failure shows.
const SHOWN: usize = 6;
/// A boot may take this many times as long as the first one.
const PATIENCE: u32 = 12;
/// The shortest time that a boot is given.
const LEAST: Duration = Duration::from_secs(90);
/// The longest time of the first boot.
const FIRST: Duration = Duration::from_secs(180);
/// The most that a guest may print.
const OUTPUT: &str = "16M";
/// More than the kernel's log, the command's output and the VMM's words together.
const FILE: ByteSize = ByteSize::mib(64);
/// What a kernel's log says of a mistake of its own.
const COMPLAINTS: [&str; 8] = [
    "kernel BUG at",
    "BUG: unable to handle",
    "BUG: spinlock",
    "Oops: ",
    "WARNING: CPU: ",
    "possible recursive locking",
    "possible circular locking",
    "inconsistent lock state",
];

/// Boots a kernel, each time by a `pvticket boot`.
#[derive(Debug)]
pub struct Guests {
    program: PathBuf,
    kernel: PathBuf,
    stop: Interrupt,
    slots: u32,
    limit: Duration,
}

/// A boot, by the options of `pvticket boot`.
#[derive(Debug, Clone, Default)]
pub struct Boot {
    options: Vec<String>,
    /// Kernel parameters.
    append: Vec<String>,
    command: Vec<String>,
    runs: Duration,
    has_stats: bool,
}

/// How a boot ended.
#[derive(Debug)]
pub struct Ended {
    /// None: it did not end within its time.
    status: Option<ExitStatus>,
    limit: Duration,
    /// What the guest's command wrote to its stdout.
    pub stdout: String,
    /// The kernel's log and what the command wrote to its stderr.
    pub log: String,
    /// The VMM's account.
    pub stats: Option<Value>,
}

impl Guests {
    /// Of this kernel, on `slots` CPUs, until `stop` is raised.
    pub fn new(kernel: &Path, slots: u32, stop: Interrupt) -> anyhow::Result<Self> {
        let program = env::current_exe().context("cannot find this program's own file")?;
        Ok(Self { program, kernel: kernel.to_owned(), stop, slots, limit: FIRST })
    }

    /// CPUs that the guests share.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// From now on a boot may take a multiple of `first`, which one took: an emulated host is slow, and another one slower.
    pub fn expect(&mut self, first: Duration) {
        self.limit = (first * PATIENCE).max(LEAST);
    }

    /// Another kernel, in the same way.
    pub fn switch(&mut self, kernel: &Path) {
        self.kernel = kernel.to_owned();
    }

    /// Boots, and waits for the end. An error says nothing about the kernel: the VMM failed, or a signal ends this program.
    pub fn run(&self, boot: &Boot) -> anyhow::Result<Ended> {
        let folder = tempfile::tempdir().context("cannot make a temporary directory")?;
        let [stdout, log, stats] = ["stdout", "log", "stats"].map(|name| folder.path().join(name));
        let mut command = Command::new(&self.program);
        command.args(["boot", "--host", "direct", "-n", "--kernel"]).arg(&self.kernel);
        command.args(["--output-limit", OUTPUT, "--append", &boot.append.join(" ")]);
        command.args(&boot.options);
        if boot.has_stats {
            command.arg("--stats").arg(&stats);
        }
        command.arg("--").args(&boot.command).stdin(Stdio::null());
        let create = |file: &Path| File::create(file).context("cannot make a temporary file");
        command.stdout(create(&stdout)?).stderr(create(&log)?);
        let limit = self.limit + boot.runs;
        let status = process::run(command, limit, &self.stop)?;
        let read = |file: &Path| files::read(file, FILE).unwrap_or_default();
        let text = |file: &Path| String::from_utf8_lossy(&read(file)).into_owned();
        let stats = serde_json::from_slice(&read(&stats)).ok();
        let ended = Ended { status, limit, stdout: text(&stdout), log: text(&log), stats };
        // The account is written whenever a machine has ended, whatever its kernel did.
        if ended.is_killed() || boot.has_stats && ended.stats.is_none() && ended.has_failed() {
            return Err(CannotTell(format!("a guest could not be run: {}", ended.reason())).into());
        }
        Ok(ended)
    }

    /// Boots, and says how long that took.
    pub fn timed(&self, boot: &Boot) -> anyhow::Result<(Ended, Duration)> {
        let began = Instant::now();
        let ended = self.run(boot)?;
        Ok((ended, began.elapsed()))
    }
}

impl Boot {
    /// With this many vCPUs and this backend. Warnings of the kernel are in its log.
    pub fn new(cpus: u32, pv: PvBackend) -> Self {
        let options = ["--cpus", &cpus.to_string(), "--pv", pv.name()].map(String::from).into();
        Self { options, append: vec!["loglevel=5".to_owned()], ..Self::default() }
    }

    /// An option with its value.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// With these kernel parameters, too.
    pub fn append(mut self, parameters: &str) -> Self {
        self.append.push(parameters.to_owned());
        self
    }

    /// Under this policy on this many slots; the VMM's account is kept.
    pub fn under(self, policy: &str, slots: u32) -> Self {
        let scheduled = self.with("--policy", policy).with("--slots", &slots.to_string());
        Self { has_stats: true, ..scheduled }
    }

    /// Runs a shell script that takes this long beside the boot.
    pub fn script(mut self, script: &str, runs: Duration) -> Self {
        self.command = ["sh", "-c", script].map(String::from).into();
        self.runs = runs;
        self
    }
}

impl Ended {
    /// Did the command end with status 0?
    pub fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Does the kernel not have what the script tests?
    pub fn is_lacking(&self) -> bool {
        self.status.is_some_and(|status| status.code() == Some(LACKING))
    }

    fn has_failed(&self) -> bool {
        self.status.is_some_and(|status| !status.success())
    }

    fn is_killed(&self) -> bool {
        self.status.is_some_and(|status| status.signal().is_some())
    }

    /// Why a test with this boot fails, if it does: its command did, or the kernel reports a mistake of its own.
    pub fn failure(&self) -> Option<String> {
        if !self.is_good() {
            return Some(self.reason());
        }
        let is_one = |line: &&str| COMPLAINTS.iter().any(|words| line.contains(words));
        let complaint = self.log.lines().find(is_one)?;
        Some(format!("the kernel reports: {}", complaint.trim()))
    }

    /// Why it is not good, with the end of the log.
    pub fn reason(&self) -> String {
        let last: Vec<&str> = self.log.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = last[last.len().saturating_sub(SHOWN)..].join(" | ");
        match self.status {
            None => format!("hung: no end within {} s: {last}", self.limit.as_secs()),
            Some(status) => format!("ended with {status}: {last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: Option<i32>, log: &str) -> Ended {
        let status = status.map(|code| ExitStatus::from_raw(code << 8));
        Ended { status, limit: LEAST, stdout: String::new(), log: log.into(), stats: None }
    }

    #[test]
    fn a_kernel_that_reports_a_mistake_fails_though_its_command_does_not() {
        assert_eq!(ended(Some(0), "Spectre V2 : WARNING: Unprivileged eBPF\n").failure(), None);
        let warned =
            ended(Some(0), "[ 1.0] WARNING: CPU: 1 PID: 9 at kernel/locking/x.c\n[ 2.0] x\n");
        assert!(warned.failure().unwrap().ends_with("at kernel/locking/x.c"), "{warned:?}");
        let failed = ended(Some(1), "a\n\nb\n").failure().unwrap();
        assert_eq!(failed, "ended with exit status: 1: a | b");
        assert_eq!(ended(None, "stalled").failure().unwrap(), "hung: no end within 90 s: stalled");
    }
}
