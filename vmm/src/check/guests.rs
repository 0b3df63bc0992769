//! Boots of the kernel under test, each in a separate `pvticket boot` process, and their results.

use std::{
    env,
    fs::File,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::Context;
use serde_json::Value;

use crate::check::{
    CannotTell, Failure, complaints,
    host_time::HostTime,
    process::{self, Exit},
    subject::Kernel,
};
use base::{backend::PvBackend, files, shown, units::ByteSize};
use os::signals::Interrupt;

/// Exit status of a test's script if the kernel lacks the tested feature.
pub const LACKING: i32 = 77;
/// Exit status of a test's script after a timeout.
pub const TIMED_OUT: i32 = 78;
/// Lines of the guest's log in a failure message.
const SHOWN: usize = 6;
/// Limit of a boot's time, as a multiple of the first boot's.
const PATIENCE: u32 = 12;
/// Shortest time limit of a boot.
const LEAST: Duration = Duration::from_secs(90);
/// Time limit of the first boot.
const FIRST: Duration = Duration::from_secs(180);
/// Limit of a guest's output.
const OUTPUT: &str = "16M";
/// More than the kernel's log, the command's output and the VMM's messages together.
const FILE: ByteSize = ByteSize::mib(64);
/// A timeout in the kernel's log is attributed to the host if the host took more time than this. The shortest
/// timeouts that Linux can be configured with are 3 s (RCU) and 2 s (soft lockups).
const TIMEOUT: Duration = Duration::from_secs(2);
/// Characters of a guest's line in a message.
const SHOWN_OF_LINE: usize = 200;

/// Boots a kernel, each time in a `pvticket boot` process.
#[derive(Debug)]
pub struct Guests {
    program: PathBuf,
    kernel: Kernel,
    /// Bug reports with one of these texts are ignored.
    allowed: Vec<String>,
    stop: Interrupt,
    slots: u32,
    limit: Duration,
    /// Host time taken from the boots whose outcome counts.
    host: HostTime,
}

/// A boot, as options of `pvticket boot`.
#[derive(Debug, Clone)]
pub struct Boot {
    options: Vec<String>,
    /// Kernel parameters.
    append: String,
    script: String,
    runs: Duration,
}

/// The outcome of a boot.
#[derive(Debug)]
pub struct Ended {
    /// None after a timeout.
    status: Option<ExitStatus>,
    limit: Duration,
    host: HostTime,
    allowed: Vec<String>,
    /// Output of the guest's command.
    pub stdout: String,
    /// The kernel's log and the command's stderr.
    pub log: String,
    /// The VMM's statistics (`--stats`).
    pub stats: Option<Value>,
}

impl Guests {
    /// Boots this kernel on `slots` CPUs until `stop` is raised. Ignores bug reports with an `allowed` text.
    pub fn new(
        kernel: &Kernel,
        allowed: &[String],
        slots: u32,
        stop: Interrupt,
    ) -> anyhow::Result<Self> {
        let program = env::current_exe().context("cannot find this program's executable")?;
        let (kernel, allowed) = (kernel.clone(), allowed.to_vec());
        Ok(Self { program, kernel, allowed, stop, slots, limit: FIRST, host: HostTime::default() })
    }

    /// CPUs that the guests share.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Sets the time limit to a multiple of the first boot's time: emulated hosts differ in speed.
    pub fn expect(&mut self, first: Duration) {
        self.limit = (first * PATIENCE).max(LEAST);
    }

    /// Switches to another kernel. The limits stay.
    pub fn switch(&mut self, kernel: &Kernel) {
        self.kernel = kernel.clone();
    }

    /// Returns and resets the host time.
    pub fn take_host_time(&mut self) -> HostTime {
        std::mem::take(&mut self.host)
    }

    /// Boots, and repeats the boot if the host took much time. Only the repetition counts then.
    pub fn run_undisturbed(&mut self, boot: &Boot) -> anyhow::Result<Ended> {
        let before = self.host;
        let ended = self.run(boot)?;
        if !ended.host.is_much() {
            return Ok(ended);
        }
        self.host = before;
        self.run(boot)
    }

    /// Boots, and waits for the end. Fails if the VMM failed or a signal arrived.
    pub fn run(&mut self, boot: &Boot) -> anyhow::Result<Ended> {
        let folder = tempfile::tempdir().context("cannot create a temporary directory")?;
        let [stdout, log, stats] = ["stdout", "log", "stats"].map(|name| folder.path().join(name));
        let mut command = Command::new(&self.program);
        command.args(["boot", "--host", "direct", "-n", "--kernel"]).arg(&self.kernel.file);
        command.args(["--output-limit", OUTPUT, "--append", &boot.append]).args(&boot.options);
        command.arg("--stats").arg(&stats).args(["--", "sh", "-c", &boot.script]);
        let create = |file: &Path| File::create(file).context("cannot create a temporary file");
        command.stdin(Stdio::null()).stdout(create(&stdout)?).stderr(create(&log)?);
        let limit = self.limit + boot.runs;
        let Exit { status, host } = process::run(command, limit, self.slots, &self.stop)?;
        self.host = self.host.plus(host);
        let read = |file: &Path| files::read(file, FILE).unwrap_or_default();
        let text = |file: &Path| String::from_utf8_lossy(&read(file)).into_owned();
        let ended = Ended {
            status,
            limit,
            host,
            allowed: self.allowed.clone(),
            stdout: text(&stdout),
            log: self.kernel.in_users_words(&text(&log)),
            stats: serde_json::from_slice(&read(&stats)).ok(),
        };
        if ended.is_of_the_vmm() {
            return Err(CannotTell(format!("a guest could not be run: {}", ended.reason())).into());
        }
        Ok(ended)
    }
}

impl Boot {
    /// A boot with this many vCPUs and this backend. Kernel warnings appear in the log.
    pub fn new(cpus: u32, pv: PvBackend) -> Self {
        let options = ["--cpus", &cpus.to_string(), "--pv", pv.name()].map(String::from).into();
        let append = format!("loglevel=5 {}", complaints::PARAMETER);
        Self { options, append, script: String::new(), runs: Duration::ZERO }
    }

    /// Adds an option with its value.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Adds kernel parameters.
    pub fn append(mut self, parameters: &str) -> Self {
        self.append += " ";
        self.append += parameters;
        self
    }

    /// Sets the policy and the number of slots.
    pub fn under(self, policy: &str, slots: u32) -> Self {
        self.with("--policy", policy).with("--slots", &slots.to_string())
    }

    /// Runs a shell script. Its time, `runs`, is added to the time limit.
    pub fn script(self, script: &str, runs: Duration) -> Self {
        Self { script: script.to_owned(), runs, ..self }
    }
}

impl Ended {
    /// Whether the command ended with status 0.
    pub fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether the kernel lacks the tested feature.
    pub fn is_lacking(&self) -> bool {
        self.status.is_some_and(|status| status.code() == Some(LACKING))
    }

    /// Whether the VMM failed. It writes statistics at the end of every machine, even if the kernel crashed.
    fn is_of_the_vmm(&self) -> bool {
        let has_failed = |status: ExitStatus| {
            status.signal().is_some() || !status.success() && self.stats.is_none()
        };
        self.status.is_some_and(has_failed)
    }

    /// Fails if the command failed or the kernel printed a bug report.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(complaint) = complaints::first(&self.log, &self.allowed) {
            let why = format!("the kernel reports: {}", shown::cut(complaint.line, SHOWN_OF_LINE));
            let is_late = complaint.is_by_time && self.host.taken() > TIMEOUT;
            return Err(Failure { why, is_late });
        }
        if self.is_good() {
            return Ok(());
        }
        Err(Failure { why: self.reason(), is_late: self.is_late() })
    }

    /// Whether a timeout ended it, or it hung while the host took most of the time. Time in which this
    /// program stood still, too, is not included.
    fn is_late(&self) -> bool {
        match self.status {
            Some(status) => status.code() == Some(TIMED_OUT),
            None => self.host.taken() > self.host.wall / 2,
        }
    }

    /// The reason of a failure, with the last lines of the log.
    pub fn reason(&self) -> String {
        let last = self.log.lines().rev().filter(|line| !line.trim().is_empty()).take(SHOWN);
        let mut last: Vec<&str> = last.map(|line| shown::cut(line, SHOWN_OF_LINE)).collect();
        last.reverse();
        let last = last.join(" | ");
        match self.status {
            None => format!("hung: did not end within {} s: {last}", self.limit.as_secs()),
            Some(status) => format!("ended with {status}: {last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: Option<i32>, log: &str) -> Ended {
        let status = status.map(|code| ExitStatus::from_raw(code << 8));
        Ended {
            status,
            limit: LEAST,
            host: HostTime::default(),
            allowed: Vec::new(),
            stdout: String::new(),
            log: log.into(),
            stats: None,
        }
    }

    #[test]
    fn a_kernel_that_reports_a_mistake_fails_though_its_command_does_not() {
        let failure = |status, log: &str| ended(status, log).check().err();
        let spectre = "[    1.000000] Spectre V2 : WARNING: Unprivileged eBPF\n";
        assert_eq!(failure(Some(0), spectre), None);
        let warned =
            "[    1.000000] WARNING: CPU: 1 PID: 9 at kernel/locking/x.c\n[    2.000000] x\n";
        let why = "the kernel reports: WARNING: CPU: 1 PID: 9 at kernel/locking/x.c";
        assert_eq!(failure(Some(0), warned), Some(Failure::sure(why)));
        // The report takes precedence over the status.
        assert_eq!(failure(Some(1), warned), Some(Failure::sure(why)));
        let late = "[    1.000000] watchdog: BUG: soft lockup - CPU#1 stuck for 26s!\n";
        assert!(!failure(Some(0), late).unwrap().is_late, "the host took no time");
        let host = HostTime::held(TIMEOUT * 2);
        assert!(Ended { host, ..ended(Some(0), late) }.check().unwrap_err().is_late);
        assert!(!Ended { host, ..ended(Some(0), warned) }.check().unwrap_err().is_late);
        let failed = failure(Some(1), "a\n\nb\n");
        assert_eq!(failed, Some(Failure::sure("ended with exit status: 1: a | b")));
        assert!(failure(Some(TIMED_OUT), "a").unwrap().is_late);
        let hung = failure(None, "stalled");
        assert_eq!(hung, Some(Failure::sure("hung: did not end within 90 s: stalled")));
    }

    /// Regression: 16 MB of guest output were repeated in each message.
    #[test]
    fn little_of_what_a_guest_writes_is_repeated() {
        let flood = "x".repeat(1 << 20);
        let reason = ended(Some(1), &format!("{flood}\n").repeat(9)).check().unwrap_err().why;
        assert!(reason.len() < 2 * SHOWN * SHOWN_OF_LINE, "{}", reason.len());
        let report = ended(Some(0), &format!("[    1.000000] BUG: {flood}\n"));
        assert!(report.check().unwrap_err().why.len() < 2 * SHOWN_OF_LINE);
    }
}
