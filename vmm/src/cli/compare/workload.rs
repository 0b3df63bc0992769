//! What a guest does: `--workload`.

use std::{fmt, sync::LazyLock};

use clap::{ValueEnum, builder::PossibleValue};
use hypercalls::payload;
use locks::System;
use serde::Serialize;

use super::{CompareArgs, Guest, kernels};
use crate::{
    cli::Usage,
    guest::{kernels::Kernels, payload::PayloadSpec},
    lab::{Cell, GuestWorkload, LinuxCell, PayloadCell},
};

/// A workload of one guest or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadName {
    /// The payload's; the first of them is the Linux guest's `lock`, too.
    Payload(payload::Workload),
    /// A program in the Linux guest.
    Linux(GuestWorkload),
}

impl WorkloadName {
    /// What both have.
    pub const LOCK: Self = Self::Payload(payload::Workload::Operate);

    /// As it parses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Payload(workload) => workload.name().unwrap_or_default(),
            Self::Linux(workload) => workload.name(),
        }
    }
}

impl ValueEnum for WorkloadName {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<WorkloadName>> = LazyLock::new(|| {
            let payloads = payload::Workload::OF_LOCKS.iter();
            let payloads = payloads.map(|(workload, ..)| WorkloadName::Payload(*workload));
            let linux = GuestWorkload::value_variants().iter().copied();
            let linux = linux.filter(|workload| *workload != GuestWorkload::Lock);
            payloads.chain(linux.map(WorkloadName::Linux)).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Payload(workload) => {
                let mut all = payload::Workload::OF_LOCKS.iter();
                let (_, name, about) = all.find(|(its, ..)| its == workload)?;
                Some(PossibleValue::new(*name).help(*about))
            }
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
        #[serde(flatten)]
        kernels: Kernels,
    },
}

impl Workload {
    /// What runs it.
    pub(in crate::cli) fn cell(&self) -> Box<dyn Cell> {
        match *self {
            Workload::Payload(cell) => Box::new(cell),
            Workload::Linux { workload, critical, think, spin_threshold, ref kernels } => {
                let kernels = kernels.clone();
                Box::new(LinuxCell { kernels, workload, spin_threshold, critical, think })
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
            Workload::Linux { workload, critical, think, spin_threshold, kernels } => {
                match workload {
                    GuestWorkload::Lock => write!(
                        f,
                        "Linux, one thread a vCPU: {critical} increments under one spin_lock, \
                         {think} beside it"
                    ),
                    other => write!(f, "Linux: bench {}", other.name()),
                }?;
                // Nothing changes a stock kernel's.
                let stock = LinuxCell::SPIN_THRESHOLD;
                match (&kernels.ticket, &kernels.stock) {
                    (None, _) => write!(f, "; PV halts after {stock} looks"),
                    (_, None) => write!(f, "; PV halts after {spin_threshold} looks"),
                    _ => write!(f, "; PV halts after {spin_threshold} looks, stock {stock}"),
                }
            }
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
    if args.stock_kernel.is_some() {
        return Err(only_for("linux", "--stock-kernel"));
    }
    let workload = match args.workload {
        WorkloadName::Payload(workload) => workload,
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
    if args.latency {
        return Err(only_for("payload", "--latency"));
    }
    if args.sum_every.is_some() {
        return Err(only_for("payload", "--sum-every"));
    }
    match args.workload {
        WorkloadName::LOCK => Ok(GuestWorkload::Lock),
        WorkloadName::Linux(workload) => Ok(workload),
        other => Err(only_for("payload", &format!("--workload {}", other.name()))),
    }
}

/// What the arguments ask for.
pub(super) fn workload(
    args: &CompareArgs,
    systems: &[System],
    emulated: bool,
) -> anyhow::Result<Workload> {
    match args.guest {
        Guest::Payload => Ok(Workload::Payload(payload_cell(args)?)),
        Guest::Linux => {
            let &CompareArgs { critical, think, .. } = args;
            let workload = linux_workload(args)?;
            let kernels = kernels::find(args, systems)?;
            let spin_threshold =
                args.spin_threshold.unwrap_or_else(|| LinuxCell::default_looks(emulated));
            if spin_threshold == 0 {
                return Err(
                    Usage("--spin-threshold: a Linux guest looks at least once".into()).into()
                );
            }
            Ok(Workload::Linux { workload, critical, think, spin_threshold, kernels })
        }
    }
}
