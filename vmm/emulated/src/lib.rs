//! The emulated host: runs this program's own commands ([`Errand`]) in a machine with AMD-V that
//! QEMU's TCG emulates, for systems without KVM or whose KVM cannot run guest kernels.
//!
//! ```text
//! run() ── QEMU ── Debian's cloud kernel ── /init = this binary (agent) ── this binary ARGS
//!   │  control, stdin, stdout, stderr: virtio-serial ports     │  pipes
//!   └──────────────────────────────────────────────────────────┘
//! ```
//!
//! Time in which a busy system denies QEMU a CPU does not count as silence (`os::processes`). A freeze is
//! never reported as a failure of the command. The machine is restarted as often as the environment allows
//! (by default never), with a line on stderr each time, and only while the command can be repeated unnoticed:
//! none of its [`OutputMode::Live`] output has been passed on, and its input is still kept. Otherwise, and
//! when all restarts are used up, `run` fails with [`EmulatedError::Frozen`], which no command can cause.
//! Result files appear only after the command has ended.

#![forbid(unsafe_code)]
// print!/eprint! panic on a closed stream. The agent prints on its console.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod agent;
mod error;
mod qemu;
mod session;
mod streams;
mod supervise;
pub mod wire;

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    time::{Duration, Instant},
};

pub use error::EmulatedError;
pub use qemu::confinement::limits_of_qemu;
pub use qemu::pieces::{Parts, PartsError, QEMU, find_qemu};
pub use session::watch::{Freeze, SilenceLimits};
pub use streams::{output::OutputMode, results::Missing, stdin::StdinMode};
pub use wire::Injection;

use base::units::ByteSize;
use kvm::signal;
use os::{artifacts::cache_dir, owners::untrusted_user, runtime};
use study::point::HostKernel;

/// A command to run in the emulated host, with its resources.
#[derive(Debug, Clone)]
pub struct Errand {
    /// Arguments of this program in the emulated host, without its name.
    pub args: Vec<OsString>,
    /// Environment variables in addition to `PATH`, `HOME` and `TMPDIR`, which are always set.
    pub env: Vec<(OsString, OsString)>,
    /// Files to forward: path on this host, absolute path in the emulated host. They occupy memory there.
    pub files_in: Vec<(PathBuf, PathBuf)>,
    /// Contents of further files: bytes, absolute path in the emulated host.
    pub contents_in: Vec<(Vec<u8>, PathBuf)>,
    /// Result files: absolute path in the emulated host, path on this host.
    pub files_out: Vec<(PathBuf, PathBuf)>,
    /// Source of the command's input.
    pub stdin: StdinMode,
    /// Destination of its stdout.
    pub stdout: OutputMode,
    /// Destination of its stderr.
    pub stderr: OutputMode,
    /// CPUs for the command. The machine has one more, which is kept free of guests.
    pub cpus: u32,
    /// The emulated host's kernel.
    pub kernel: HostKernel,
    /// Memory of the emulated host, including the guest, the files, and the host's own 128 MiB.
    pub memory: ByteSize,
    /// Whether stderr is a terminal in raw mode, where lines need a carriage return.
    pub interactive: bool,
}

impl Errand {
    /// Creates a command with these arguments, this process's stdin, live output, 1 GiB, and the default
    /// number of CPUs and kernel.
    pub fn new(args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            files_in: Vec::new(),
            contents_in: Vec::new(),
            files_out: Vec::new(),
            stdin: StdinMode::Inherit,
            stdout: OutputMode::Live,
            stderr: OutputMode::Live,
            cpus: default_cpus(),
            kernel: HostKernel::default(),
            memory: ByteSize::mib(1024),
            interactive: false,
        }
    }
}

/// Returns the default number of CPUs for a command in the emulated host: the CPUs that this process may use,
/// at most 16. A quota of CPU time is ignored, as slots are CPUs of any speed.
pub fn default_cpus() -> u32 {
    signal::allowed_cpus().len().clamp(1, 16) as u32
}

/// Supervision of the emulated host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervision {
    /// Times after which the emulated host counts as frozen.
    pub limits: SilenceLimits,
    /// The number of restarts allowed.
    pub restarts: u32,
    /// Faults to inject for tests, one per session.
    pub inject: Vec<Option<Injection>>,
    /// Whether to add one CPU, to keep the first CPU free of guests.
    pub spare: bool,
    /// Directory for evidence of failures; `None`: none is kept.
    pub evidence: Option<PathBuf>,
}

impl Default for Supervision {
    fn default() -> Self {
        Self {
            limits: SilenceLimits {
                boot: Duration::from_secs(90),
                silence: Duration::from_secs(20),
            },
            restarts: 0,
            inject: Vec::new(),
            spare: true,
            // Unused if another user could have placed links there.
            evidence: cache_dir()
                .ok()
                .map(|cache| cache.join("evidence"))
                .filter(|place| untrusted_user(place).is_none()),
        }
    }
}

impl Supervision {
    /// Returns the default, modified by the environment: `PVTICKET_EMULATED_DEADLINE` (seconds without a
    /// sign of life, at least 0.5), `PVTICKET_EMULATED_RESTARTS`, and, for tests, `PVTICKET_EMULATED_INJECT`
    /// (a comma-separated list of `none`, `mute`, `stop`, `panic`, `kill`, `fxrstor`, one for each machine)
    /// and `PVTICKET_EMULATED_SPARE` (0: no CPU is kept free of guests).
    pub fn from_env() -> Result<Self, EmulatedError> {
        Self::from_variables(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, EmulatedError> {
        let bad = |name, value: &str| EmulatedError::Variable { name, value: value.into() };
        let mut supervision = Self::default();
        let name = "PVTICKET_EMULATED_DEADLINE";
        if let Some(value) = variable(name) {
            let seconds = value.parse().ok().filter(|&seconds: &f64| seconds >= 0.5);
            supervision.limits.silence = seconds
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or_else(|| bad(name, &value))?;
        }
        let name = "PVTICKET_EMULATED_RESTARTS";
        if let Some(value) = variable(name) {
            supervision.restarts = value.parse().map_err(|_| bad(name, &value))?;
        }
        let name = "PVTICKET_EMULATED_INJECT";
        if let Some(value) = variable(name) {
            let list: Option<Vec<_>> = value.split(',').map(injection).collect();
            supervision.inject = list.ok_or_else(|| bad(name, &value))?;
        }
        let name = "PVTICKET_EMULATED_SPARE";
        if let Some(value) = variable(name) {
            supervision.spare = match value.as_str() {
                "0" => false,
                "1" => true,
                _ => return Err(bad(name, &value)),
            };
        }
        Ok(supervision)
    }
}

fn injection(word: &str) -> Option<Option<Injection>> {
    match word {
        "none" => Some(None),
        "mute" => Some(Some(Injection::Mute)),
        "stop" => Some(Some(Injection::Stop)),
        "panic" => Some(Some(Injection::Panic)),
        "kill" => Some(Some(Injection::Kill)),
        "fxrstor" => Some(Some(Injection::Fxrstor)),
        _ => None,
    }
}

/// Result of a command that ended on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Exit status, or 128 plus the number of the signal that ended the command.
    pub status: i32,
    /// Result files that the command did not produce.
    pub missing: Vec<Missing>,
}

/// Runs a command in the emulated host and waits for it.
///
/// Handles SIGINT, SIGTERM and SIGHUP by killing the emulator and returning [`EmulatedError::Interrupted`],
/// so that a caller can restore its terminal.
pub fn run(errand: &Errand, supervision: &Supervision) -> Result<Finished, EmulatedError> {
    if errand.memory < error::MIN_MEMORY {
        return Err(EmulatedError::TooSmall(errand.memory));
    }
    let pieces = Parts::find(errand.kernel)?;
    let image = qemu::image::Initramfs::pack(&pieces.modules, errand)?;
    let runtime = runtime::build()?;
    let finished = runtime.block_on(supervise::supervise(errand, supervision, &pieces, &image));
    // A thread may be blocked on an output that nobody reads. It is abandoned.
    runtime.shutdown_background();
    finished
}

/// The time since its start, in the form used by [`session::watch::LivenessWatch`].
#[derive(Debug, Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now(self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_changes_the_supervision() {
        let set = |name: &str| match name {
            "PVTICKET_EMULATED_DEADLINE" => Some("2.5".to_owned()),
            "PVTICKET_EMULATED_RESTARTS" => Some("0".to_owned()),
            "PVTICKET_EMULATED_INJECT" => Some("none,mute,stop,panic,kill,fxrstor".to_owned()),
            "PVTICKET_EMULATED_SPARE" => Some("0".to_owned()),
            _ => None,
        };
        let supervision = Supervision::from_variables(set).unwrap();
        assert_eq!(supervision.limits.silence, Duration::from_millis(2500));
        assert_eq!((supervision.restarts, supervision.inject.len()), (0, 6));
        assert!(!supervision.spare && Supervision::default().spare);
        assert_eq!(supervision.inject[1], Some(Injection::Mute));
        for (name, value) in [
            ("PVTICKET_EMULATED_DEADLINE", "0"),
            ("PVTICKET_EMULATED_DEADLINE", "inf"),
            ("PVTICKET_EMULATED_RESTARTS", "-1"),
            ("PVTICKET_EMULATED_INJECT", "mute,"),
            ("PVTICKET_EMULATED_SPARE", "no"),
        ] {
            let set = |variable| (variable == name).then(|| value.to_owned());
            let error = Supervision::from_variables(set).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
