//! The host, the guest and the conclusions of a study, in a few lines: for commands that print tables of their own.

mod conclusions;

pub use conclusions::conclusions;

use super::si::{percent, ratio};
use crate::words::{self, disturbed, moved, simulated};
use base::plural::count;
use study::{
    findings::Study,
    host::HostFacts,
    point::{GuestKind, Point},
    stats::Estimate,
};

/// A share of the CPUs' time taken by others above which there is a warning.
const BUSY: f64 = 0.1;

pub(super) fn dash() -> String {
    "-".to_owned()
}

/// The host that the study's last run began on, in a line.
pub fn host_of(study: &Study) -> String {
    let sessions = study.runs.iter().flat_map(|run| &run.sessions);
    sessions.last().map(|session| host(&session.host)).unwrap_or_default()
}

/// What the reader of any table has to know of its cells: that some have no figures, that a host's CPUs
/// were moved, and that a simulation's rates follow its start.
pub fn notes_of(study: &Study) -> String {
    let moved = study.moved.as_ref().map(moved::in_words);
    let notes = [disturbed::quota(study), words::partial([study]), moved, simulated::frozen(study)];
    notes.into_iter().flatten().map(|note| format!("note    {note}\n")).collect()
}

/// A warning if other processes used the CPUs of the vCPUs just before.
pub fn busy(facts: &HostFacts) -> Option<String> {
    let busy = facts.busy.filter(|busy| *busy >= BUSY)?;
    Some(format!(
        "other processes used {} of these CPUs just before: the vCPUs may get less than stated",
        percent(busy)
    ))
}

fn host(facts: &HostFacts) -> String {
    let load =
        facts.load_average.first().map(|load| format!(", load {load:.2}")).unwrap_or_default();
    let busy = busy(facts).map(|busy| format!("note    {busy}\n")).unwrap_or_default();
    format!("host    {}{load}\n{busy}", facts.in_words())
}

/// The guest and its work, in words.
pub fn guest(point: &Point) -> String {
    let Point {
        guest, guest_kernel, workload, lock_count, critical, think, spin_threshold, ..
    } = point;
    let locks =
        if *lock_count == 1 { "one lock".into() } else { format!("one of {lock_count} locks") };
    // Earlier stores have none, nor have those of a file that the user named: it is 6.1 or whatever was booted.
    let linux =
        if guest_kernel.is_unnamed() { "Linux".into() } else { format!("Linux {guest_kernel}") };
    let work = match (guest, workload.as_str()) {
        (GuestKind::Payload, "switch") => {
            return "ring-3 payload: each vCPU writes the time again and again; an operation is a switch from \
                    one to another"
                .into();
        }
        (GuestKind::Payload, workload) => {
            let what = match workload {
                "hot-line" => ", the last vCPU only reads",
                "mixed" => ", all families in turn",
                _ => "",
            };
            format!("ring-3 payload{what}: {critical} increments under {locks}, {think} beside it")
        }
        (GuestKind::Linux, "lock") => format!(
            "{linux}, one thread per vCPU: {critical} increments under one spin_lock, {think} beside it"
        ),
        (GuestKind::Linux, other) => format!("{linux}: bench {other}"),
        (GuestKind::Sim, _) => format!(
            "the lock library's sources: work of {critical} increments under {locks}, {think} beside it, \
             on simulated machine {}",
            point.machine
        ),
    };
    format!("{work}; PV ticketlocks halt after {}", count(*spin_threshold, "look"))
}

pub(super) fn with_interval(estimate: &Estimate) -> String {
    let value = ratio(estimate.value);
    match estimate.interval {
        Some(interval) => format!("{value} ({} .. {})", ratio(interval.low), ratio(interval.high)),
        None => value,
    }
}

#[cfg(test)]
mod tests;
