//! The option `--workload`.

use clap::builder::{PossibleValue, PossibleValuesParser};
use hypercalls::payload;

use study::guest::workload::GuestWorkload;

/// The parser of a workload's name, of the payload or of Linux guests.
pub(super) fn workloads() -> PossibleValuesParser {
    let payloads = payload::Workload::OF_LOCKS.iter();
    let payloads = payloads.map(|(_, name, about)| PossibleValue::new(*name).help(*about));
    // Both kinds of guests have `lock`.
    let linux = GuestWorkload::ALL.into_iter().filter(|workload| *workload != GuestWorkload::Lock);
    let linux = linux.map(|workload| {
        PossibleValue::new(workload.name()).help(format!("Linux: {}", workload.about()))
    });
    payloads.chain(linux).collect::<Vec<_>>().into()
}
