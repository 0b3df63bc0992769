//! Trace data of a schedule in the host's kernel.

use crate::driver::{Captured, Meter, capture::METER_EVERY};
use base::units::Nanos;
use sched::{
    event::LockActivity,
    log::{self, Sighting, VmProgress},
};

/// Maximum number of slices in a trace.
const TRACED: usize = 1 << 20;

/// Slices, and the activity seen at their ends.
#[derive(Default)]
pub(super) struct KernelTrace {
    /// Each with its start time.
    turns: Vec<(Nanos, log::Turn)>,
    pub(super) lost: u64,
    sightings: Vec<Sighting>,
    progress: Vec<VmProgress>,
    pub(super) meters: Vec<Meter>,
}

impl KernelTrace {
    /// Adds a slice that began at this time, and its vCPU's activity at the end.
    pub(super) fn add(&mut self, began: Nanos, turn: log::Turn, activity: LockActivity) {
        if self.turns.len() == TRACED {
            self.lost += 1;
            return;
        }
        self.turns.push((began, turn));
        let (at, vcpu) = (began.after(turn.ran), turn.vcpu);
        self.sightings.push(Sighting { at, vcpu, activity });
    }

    /// Reads the machines' progress, unless it was read a moment ago.
    pub(super) fn read_meters(&mut self, now: Nanos) {
        let is_due = |last: &VmProgress| now.since(last.at) >= METER_EVERY;
        if self.progress.last().is_none_or(is_due) && self.progress.len() < TRACED {
            let read = (0..).zip(&self.meters);
            let read = read.map(|(vm, meter)| VmProgress { at: now, vm, done: meter() });
            self.progress.extend(read);
        }
    }

    pub(super) fn captured(&self, until: Nanos) -> Captured {
        let began = self.turns.iter().map(|(began, _)| *began).min().unwrap_or(until);
        let mut sightings = self.sightings.clone();
        sightings.sort_by_key(|sighting| sighting.at);
        Captured {
            sightings,
            handoffs: Vec::new(),
            progress: self.progress.clone(),
            lost_sightings: self.lost,
            lost_handoffs: 0,
            began,
            until,
        }
    }

    /// Returns the slices ordered by start time, relative to `began`.
    pub(super) fn turns(&self, began: Nanos) -> Vec<log::Turn> {
        let since = |(at, turn): &(Nanos, log::Turn)| log::Turn { at: at.since(began), ..*turn };
        let mut turns: Vec<log::Turn> = self.turns.iter().map(since).collect();
        turns.sort_by_key(|turn| turn.at);
        turns
    }
}
