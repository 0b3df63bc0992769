//! The guest's workload: `--workload`.

use std::sync::LazyLock;

use clap::{ValueEnum, builder::PossibleValue};
use hypercalls::payload;

use study::guest::workload::GuestWorkload;

/// A workload of the payload, of the Linux guest, or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadName {
    /// A payload workload; the first of them is also the Linux guest's `lock`.
    Payload(payload::Workload),
    /// A program in the Linux guest.
    Linux(GuestWorkload),
}

impl WorkloadName {
    /// The workload that both guests have.
    pub const LOCK: Self = Self::Payload(payload::Workload::Operate);

    /// The name on the command line.
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
            let linux = GuestWorkload::ALL.into_iter();
            let linux = linux.filter(|workload| *workload != GuestWorkload::Lock);
            payloads.chain(linux.map(WorkloadName::Linux)).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Payload(workload) => {
                let mut all = payload::Workload::OF_LOCKS.iter();
                let (_, name, about) = all.find(|(candidate, ..)| candidate == workload)?;
                Some(PossibleValue::new(*name).help(*about))
            }
            Self::Linux(workload) => {
                let help = format!("Linux: {}", workload.about());
                Some(PossibleValue::new(workload.name()).help(help))
            }
        }
    }
}
