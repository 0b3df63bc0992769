//! What a guest does: `--workload`.

use std::{fmt, fs, path::PathBuf};

use clap::{ValueEnum, builder::PossibleValue};
use hypercalls::payload;
use serde::Serialize;

use super::{CompareArgs, Guest};
use crate::{
    cli::Usage,
    guest::{artifacts, payload::PayloadSpec},
    lab::{Cell, GuestWorkload, LinuxCell, PayloadCell},
};

/// A workload of one guest or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadName {
    /// The payload's, and the Linux guest's `lock`.
    Lock,
    /// The payload's reader.
    HotLine,
    /// The payload's mix.
    Mixed,
    /// A program in the Linux guest.
    Linux(GuestWorkload),
}

impl WorkloadName {
    /// As it parses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => GuestWorkload::Lock.name(),
            Self::HotLine => "hot-line",
            Self::Mixed => "mixed",
            Self::Linux(workload) => workload.name(),
        }
    }
}

impl ValueEnum for WorkloadName {
    fn value_variants<'a>() -> &'a [Self] {
        use GuestWorkload::{Allocate, Futex, Messaging, Mmap, OpenReadClose, Spawn};
        &[
            Self::Lock,
            Self::HotLine,
            Self::Mixed,
            Self::Linux(Mmap),
            Self::Linux(OpenReadClose),
            Self::Linux(Allocate),
            Self::Linux(Messaging),
            Self::Linux(Spawn),
            Self::Linux(Futex),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Lock => Some(PossibleValue::new(self.name()).help(
                "Every vCPU uses one system again and again: a lock (in a Linux guest the \
                 kernel's), a mutex, a counter, a lockref",
            )),
            Self::HotLine => Some(PossibleValue::new(self.name()).help(
                "Payload: the same, but the last vCPU only reads the word that the others write",
            )),
            Self::Mixed => Some(
                PossibleValue::new(self.name())
                    .help("Payload: a spinlock, a mutex, a counter and a lockref by turns"),
            ),
            Self::Linux(workload) => workload.to_possible_value().map(|value| {
                let help = value.get_help().map(|help| format!("Linux: {help}"));
                value.help(help.unwrap_or_default())
            }),
        }
    }
}

/// What the guest does.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "guest", rename_all = "snake_case")]
pub(in crate::cli) enum Workload {
    /// The payload.
    Payload(PayloadCell),
    /// A program in a Linux guest, or the benchmark in its kernel.
    Linux {
        workload: GuestWorkload,
        critical: u32,
        think: u32,
        spin_threshold: u32,
        kernel: PathBuf,
    },
}

impl Workload {
    /// What runs it.
    pub(in crate::cli) fn cell(&self) -> Box<dyn Cell> {
        match *self {
            Workload::Payload(cell) => Box::new(cell),
            Workload::Linux { workload, critical, think, spin_threshold, ref kernel } => {
                let kernel = kernel.clone();
                Box::new(LinuxCell { kernel, workload, spin_threshold, critical, think })
            }
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Payload(PayloadCell {
                workload, critical, think, spin_threshold, ..
            }) => {
                let what = match workload {
                    payload::Workload::HotLine => ", the last vCPU only reads",
                    payload::Workload::Mixed => ", all families by turns",
                    _ => "",
                };
                write!(
                    f,
                    "ring-3 payload{what}: {critical} increments under one lock, {think} beside \
                     it; PV halts after {spin_threshold} looks"
                )
            }
            Workload::Linux { workload, spin_threshold, .. }
                if *workload != GuestWorkload::Lock =>
            {
                let name = workload.name();
                write!(f, "Linux: bench {name}; PV halts after {spin_threshold} looks")
            }
            Workload::Linux { critical, think, spin_threshold, .. } => write!(
                f,
                "Linux, one thread a vCPU: {critical} increments under one spin_lock, {think} \
                 beside it; PV halts after {spin_threshold} looks"
            ),
        }
    }
}

fn only_for(guest: &str, option: &str) -> Usage {
    Usage(format!("{option} is only for --guest {guest}"))
}

fn payload_cell(args: &CompareArgs) -> Result<PayloadCell, Usage> {
    if args.kernel.is_some() {
        return Err(only_for("linux", "--kernel"));
    }
    let workload = match args.workload {
        WorkloadName::Lock => payload::Workload::Operate,
        WorkloadName::HotLine => payload::Workload::HotLine,
        WorkloadName::Mixed => payload::Workload::Mixed,
        WorkloadName::Linux(workload) => {
            return Err(only_for("linux", &format!("--workload {}", workload.name())));
        }
    };
    Ok(PayloadCell {
        workload,
        spin_threshold: args.spin_threshold.unwrap_or(PayloadSpec::SPIN_THRESHOLD),
        critical: args.critical,
        think: args.think,
        sum_every: args.sum_every.unwrap_or(PayloadSpec::SUM_EVERY),
        timed: args.latency,
    })
}

fn linux_workload(args: &CompareArgs) -> Result<GuestWorkload, Usage> {
    if !args.locks.is_empty() {
        return Err(only_for("payload", "--locks"));
    }
    if args.latency {
        return Err(only_for("payload", "--latency"));
    }
    if args.sum_every.is_some() {
        return Err(only_for("payload", "--sum-every"));
    }
    match args.workload {
        WorkloadName::Lock => Ok(GuestWorkload::Lock),
        WorkloadName::Linux(workload) => Ok(workload),
        other => Err(only_for("payload", &format!("--workload {}", other.name()))),
    }
}

/// What the arguments ask for.
pub(super) fn workload(args: &CompareArgs, emulated: bool) -> anyhow::Result<Workload> {
    match args.guest {
        Guest::Payload => Ok(Workload::Payload(payload_cell(args)?)),
        Guest::Linux => {
            let &CompareArgs { critical, think, .. } = args;
            let workload = linux_workload(args)?;
            let kernel = match &args.kernel {
                Some(file) => fs::canonicalize(file)
                    .map_err(|error| Usage(format!("--kernel {}: {error}", file.display())))?,
                None => artifacts::built_kernel()?,
            };
            let spin_threshold =
                args.spin_threshold.unwrap_or_else(|| LinuxCell::default_looks(emulated));
            if spin_threshold == 0 {
                return Err(
                    Usage("--spin-threshold: a Linux guest looks at least once".into()).into()
                );
            }
            Ok(Workload::Linux { workload, critical, think, spin_threshold, kernel })
        }
    }
}
