//! Trace data of a schedule in the host's kernel.

use crate::driver::{Meter, TraceData, capture::METER_INTERVAL};
use base::units::Nanos;
use sched::{
    directed_yields::{YieldOutcome, YieldRequest},
    event::LockActivity,
    log::{self, Sighting, VmProgress},
};

/// Maximum number of slices in a trace.
const MAX_SLICES: usize = 1 << 20;

/// Slices, and the activity seen at their ends.
#[derive(Default)]
pub(super) struct KernelTrace {
    /// Each with its start time.
    slices: Vec<(Nanos, log::Slice)>,
    pub(super) lost: u64,
    sightings: Vec<Sighting>,
    progress: Vec<VmProgress>,
    pub(super) meters: Vec<Meter>,
}

impl KernelTrace {
    /// Adds a slice that began at this time, and its vCPU's activity at the end.
    pub(super) fn add(&mut self, began: Nanos, slice: log::Slice, activity: LockActivity) {
        if self.slices.len() == MAX_SLICES {
            self.lost += 1;
            return;
        }
        self.slices.push((began, slice));
        let (at, vcpu) = (began.after(slice.ran), slice.vcpu);
        self.sightings.push(Sighting { at, vcpu, activity });
    }

    /// Reads the machines' progress, unless read less than [`METER_INTERVAL`] ago.
    pub(super) fn read_meters(&mut self, now: Nanos) {
        let is_due = |last: &VmProgress| now.since(last.at) >= METER_INTERVAL;
        if self.progress.last().is_none_or(is_due) && self.progress.len() < MAX_SLICES {
            let progress = (0..).zip(&self.meters);
            let progress = progress.map(|(vm, meter)| VmProgress { at: now, vm, done: meter() });
            self.progress.extend(progress);
        }
    }

    pub(super) fn data(&self, yields: &[(YieldRequest, YieldOutcome)], until: Nanos) -> TraceData {
        let began = self.slices.iter().map(|(began, _)| *began).min().unwrap_or(until);
        let mut sightings = self.sightings.clone();
        sightings.sort_by_key(|sighting| sighting.at);
        TraceData {
            sightings,
            handoffs: Vec::new(),
            yields: yields.to_vec(),
            progress: self.progress.clone(),
            lost_sightings: self.lost,
            lost_handoffs: 0,
            began,
            until,
        }
    }

    /// Returns the slices ordered by start time, relative to `began`.
    pub(super) fn slices(&self, began: Nanos) -> Vec<log::Slice> {
        let since = |(at, s): &(Nanos, log::Slice)| log::Slice { at: at.since(began), ..*s };
        let mut slices: Vec<log::Slice> = self.slices.iter().map(since).collect();
        slices.sort_by_key(|slice| slice.at);
        slices
    }
}
