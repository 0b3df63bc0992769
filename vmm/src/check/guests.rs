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
    Failure, NoVerdict, bug_reports,
    host_time::HostTime,
    kernel_source::Kernel,
    process::{self, Exit},
};
use base::{backend::PvBackend, files, sanitize, units::ByteSize};
use experiment::programs::guest_memory;
use os::signals::Interrupt;

/// Exit status of a test's script if the kernel lacks the tested feature.
pub const SKIP: i32 = 77;
/// Exit status of a test's script after a timeout.
pub const TIMED_OUT: i32 = 78;
/// Lines of the guest's log in a failure message.
const SHOWN_LINES: usize = 6;
/// Limit of a boot's time, as a multiple of the first boot's.
const LIMIT_FACTOR: u32 = 12;
/// Shortest time limit of a boot.
const MIN_LIMIT: Duration = Duration::from_secs(90);
/// Time limit of a program of the user, in addition to its boot's.
const PROGRAM_TIME: Duration = Duration::from_secs(120);
/// Exit status of `bench` for a program that cannot be started.
const NOT_STARTED: i32 = 2;
/// Time limit of the first boot.
const FIRST: Duration = Duration::from_secs(180);
/// Limit of a guest's output.
const MAX_OUTPUT: &str = "16M";
/// More than the kernel's log, the command's output and the VMM's messages together.
const MAX_FILE: ByteSize = ByteSize::mib(64);
/// A timeout in the kernel's log is attributed to the host if the host took more time than this. The shortest
/// timeouts that Linux can be configured with are 3 s (RCU) and 2 s (soft lockups).
const TIMEOUT: Duration = Duration::from_secs(2);
/// Characters of a guest's line in a message.
const SHOWN_CHARS: usize = 200;

/// Boots a kernel, each time in a `pvticket boot` process.
#[derive(Debug)]
pub struct Guests {
    executable: PathBuf,
    kernel: Kernel,
    /// Bug reports with one of these texts are ignored.
    allowed: Vec<String>,
    stop: Interrupt,
    slots: u32,
    /// The user's program.
    program: Option<UserProgram>,
    limit: Duration,
    /// Host time taken from the boots whose outcome counts.
    host: HostTime,
}

/// A program of the user, packed for guests.
#[derive(Debug, Clone)]
pub struct UserProgram {
    /// The archive with its directory.
    pub archive: PathBuf,
    /// The command in the guest.
    pub argv: Vec<String>,
}

/// A boot, as options of `pvticket boot`.
#[derive(Debug, Clone)]
pub struct Boot {
    options: Vec<String>,
    /// Kernel parameters.
    append: String,
    /// The command.
    words: Vec<String>,
    script_time: Duration,
}

/// The outcome of a boot.
#[derive(Debug)]
pub struct BootResult {
    /// `None` after a timeout.
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
    /// Guests of this kernel on `slots` CPUs, until `stop` is raised. Ignores bug reports with an `allowed` text.
    pub fn new(
        kernel: &Kernel,
        allowed: &[String],
        slots: u32,
        program: Option<UserProgram>,
        stop: Interrupt,
    ) -> anyhow::Result<Self> {
        let executable = env::current_exe().context("cannot find this program's executable")?;
        let (kernel, allowed) = (kernel.clone(), allowed.to_vec());
        let (limit, host) = (FIRST, HostTime::default());
        Ok(Self { executable, kernel, allowed, stop, slots, program, limit, host })
    }

    /// The user's program, if there is one.
    pub const fn program(&self) -> Option<&UserProgram> {
        self.program.as_ref()
    }

    /// Number of CPUs that the guests share.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Sets the time limit to a multiple of the first boot's time: emulated hosts differ in speed.
    pub fn set_limit(&mut self, first: Duration) {
        self.limit = (first * LIMIT_FACTOR).max(MIN_LIMIT);
    }

    /// Switches to another kernel. The time limit stays.
    pub fn set_kernel(&mut self, kernel: &Kernel) {
        self.kernel = kernel.clone();
    }

    /// Returns and resets the host time.
    pub fn take_host_time(&mut self) -> HostTime {
        std::mem::take(&mut self.host)
    }

    /// Boots, and repeats the boot if the host took much time. Only the repetition counts then.
    pub fn run_undisturbed(&mut self, boot: &Boot) -> anyhow::Result<BootResult> {
        let before = self.host;
        let result = self.run(boot)?;
        if !result.host.is_much() {
            return Ok(result);
        }
        self.host = before;
        self.run(boot)
    }

    /// Boots, and waits for the end. Fails if the VMM failed or a signal arrived.
    pub fn run(&mut self, boot: &Boot) -> anyhow::Result<BootResult> {
        let folder = tempfile::tempdir().context("cannot create a temporary directory")?;
        let [stdout, log, stats] = ["stdout", "log", "stats"].map(|name| folder.path().join(name));
        let mut command = Command::new(&self.executable);
        command.args(["boot", "--host", "direct", "-n", "--kernel"]).arg(&self.kernel.file);
        command.args(["--output-limit", MAX_OUTPUT, "--append", &boot.append]).args(&boot.options);
        command.arg("--stats").arg(&stats).arg("--").args(&boot.words);
        let create = |file: &Path| File::create(file).context("cannot create a temporary file");
        command.stdin(Stdio::null()).stdout(create(&stdout)?).stderr(create(&log)?);
        let limit = self.limit + boot.script_time;
        let Exit { status, host } = process::run(command, limit, self.slots, &self.stop)?;
        self.host = self.host.plus(host);
        let read = |file: &Path| files::read(file, MAX_FILE).unwrap_or_default();
        let text = |file: &Path| String::from_utf8_lossy(&read(file)).into_owned();
        let result = BootResult {
            status,
            limit,
            host,
            allowed: self.allowed.clone(),
            stdout: text(&stdout),
            log: self.kernel.replace_path(&text(&log)),
            stats: serde_json::from_slice(&read(&stats)).ok(),
        };
        if result.vmm_failed() {
            return Err(NoVerdict(format!("a guest could not be run: {}", result.reason())).into());
        }
        Ok(result)
    }
}

impl Boot {
    /// A boot with this many vCPUs and this backend. Kernel warnings appear in the log.
    pub fn new(cpus: u32, pv: PvBackend) -> Self {
        let options = ["--cpus", &cpus.to_string(), "--pv", pv.name()].map(String::from).into();
        let append = format!("loglevel=5 {}", bug_reports::PARAMETER);
        Self { options, append, words: Vec::new(), script_time: Duration::ZERO }
    }

    /// Adds an option with its value.
    pub fn option(mut self, name: &str, value: &str) -> Self {
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
    pub fn schedule(self, policy: &str, slots: u32) -> Self {
        self.option("--policy", policy).option("--slots", &slots.to_string())
    }

    /// Runs a shell script. Its time, `script_time`, is added to the time limit.
    pub fn script(self, script: &str, script_time: Duration) -> Self {
        let words = ["sh", "-c", script].map(str::to_owned).into();
        Self { words, script_time, ..self }
    }

    /// Runs a program of the user, with a root from its archive.
    pub fn program(self, program: &UserProgram) -> Self {
        let bench = ["/pvticket/bench", "program", "--"].map(str::to_owned);
        let words = bench.into_iter().chain(program.argv.iter().cloned()).collect();
        let memory = format!("{}M", guest_memory(&program.archive).0 >> 20);
        let archive = program.archive.display().to_string();
        let boot = self.option("--mem", &memory).option("--initrd", &archive);
        Self { words, script_time: PROGRAM_TIME, ..boot }
    }
}

impl BootResult {
    /// Whether the command ended with status 0.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether the kernel lacks the tested feature.
    pub fn lacks_feature(&self) -> bool {
        self.status.is_some_and(|status| status.code() == Some(SKIP))
    }

    /// Whether the program of the user could not be started.
    pub fn is_not_started(&self) -> bool {
        self.status.is_some_and(|status| status.code() == Some(NOT_STARTED))
    }

    /// Whether the VMM failed. It writes statistics at the end of every VM, even if the kernel crashed.
    fn vmm_failed(&self) -> bool {
        let has_failed = |status: ExitStatus| {
            status.signal().is_some() || !status.success() && self.stats.is_none()
        };
        self.status.is_some_and(has_failed)
    }

    /// Fails if the command failed or the kernel printed a bug report.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(report) = bug_reports::first(&self.log, &self.allowed) {
            let line = sanitize::truncate(report.line, SHOWN_CHARS);
            let is_timeout = report.is_timeout && self.host.total() > TIMEOUT;
            return Err(Failure { reason: format!("the kernel reports: {line}"), is_timeout });
        }
        if self.succeeded() {
            return Ok(());
        }
        Err(Failure { reason: self.reason(), is_timeout: self.is_timeout() })
    }

    /// Whether a timeout ended the boot, or it hung while the host took most of the time. The limit excludes time in
    /// which this program stood still, too.
    fn is_timeout(&self) -> bool {
        match self.status {
            Some(status) => status.code() == Some(TIMED_OUT),
            None => self.host.total() > self.host.wall / 2,
        }
    }

    /// The reason for a failure, with the last lines of the log.
    pub fn reason(&self) -> String {
        let last = self.log.lines().rev().filter(|line| !line.trim().is_empty()).take(SHOWN_LINES);
        let mut last: Vec<&str> = last.map(|line| sanitize::truncate(line, SHOWN_CHARS)).collect();
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

    fn result(status: Option<i32>, log: &str) -> BootResult {
        let status = status.map(|code| ExitStatus::from_raw(code << 8));
        BootResult {
            status,
            limit: MIN_LIMIT,
            host: HostTime::default(),
            allowed: Vec::new(),
            stdout: String::new(),
            log: log.into(),
            stats: None,
        }
    }

    #[test]
    fn bug_report_fails_boot_with_status_0() {
        let failure = |status, log: &str| result(status, log).check().err();
        let spectre = "[    1.000000] Spectre V2 : WARNING: Unprivileged eBPF\n";
        assert_eq!(failure(Some(0), spectre), None);
        let warned =
            "[    1.000000] WARNING: CPU: 1 PID: 9 at kernel/locking/x.c\n[    2.000000] x\n";
        let reason = "the kernel reports: WARNING: CPU: 1 PID: 9 at kernel/locking/x.c";
        assert_eq!(failure(Some(0), warned), Some(Failure::certain(reason)));
        // The report takes precedence over the status.
        assert_eq!(failure(Some(1), warned), Some(Failure::certain(reason)));
        let late = "[    1.000000] watchdog: BUG: soft lockup - CPU#1 stuck for 26s!\n";
        assert!(!failure(Some(0), late).unwrap().is_timeout, "the host took no time");
        let host = HostTime::stopped_for(TIMEOUT * 2);
        assert!(BootResult { host, ..result(Some(0), late) }.check().unwrap_err().is_timeout);
        assert!(!BootResult { host, ..result(Some(0), warned) }.check().unwrap_err().is_timeout);
        let failed = failure(Some(1), "a\n\nb\n");
        assert_eq!(failed, Some(Failure::certain("ended with exit status: 1: a | b")));
        assert!(failure(Some(TIMED_OUT), "a").unwrap().is_timeout);
        let hung = failure(None, "stalled");
        assert_eq!(hung, Some(Failure::certain("hung: did not end within 90 s: stalled")));
    }

    /// Regression: 16 MB of guest output were repeated in each message.
    #[test]
    fn messages_bound_guest_output() {
        let flood = "x".repeat(1 << 20);
        let reason = result(Some(1), &format!("{flood}\n").repeat(9)).check().unwrap_err().reason;
        assert!(reason.len() < 2 * SHOWN_LINES * SHOWN_CHARS, "{}", reason.len());
        let report = result(Some(0), &format!("[    1.000000] BUG: {flood}\n"));
        assert!(report.check().unwrap_err().reason.len() < 2 * SHOWN_CHARS);
    }
}
