//! Data that a traced schedule records besides its decisions: observed vCPU activity and handoffs.
//!
//! It is written under the core's lock, which the writer holds anyway, into buffers allocated
//! before the first slice. When they are full, further entries are only counted. Like the log of
//! slices and the account of preemptions, the buffers keep the first entries.

use std::fmt;

use base::units::Nanos;
use sched::{
    directed_yields::{YieldOutcome, YieldRequest},
    event::{Event, VcpuIndex},
    log::{Handoff, Sighting, VmProgress},
};

/// Capacity for each kind of entry. The kernel commits only the pages that are touched.
const CAPACITY: usize = 1 << 20;
/// Minimum interval between two reads of the VMs' progress.
pub(super) const METER_INTERVAL: Nanos = Nanos::millis(1);

/// Returns the number of operations completed by a VM. Must only read: the core's lock is held.
pub type Meter = Box<dyn Fn() -> u64 + Send>;

/// The data recorded by a traced schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceData {
    /// Observed activities, in chronological order.
    pub sightings: Vec<Sighting>,
    /// Handoffs, in the order of their kicks.
    pub handoffs: Vec<Handoff>,
    /// Directed yields of KVM under the host's scheduler, if observed.
    pub yields: Vec<(YieldRequest, YieldOutcome)>,
    /// Progress of the VMs, in chronological order.
    pub progress: Vec<VmProgress>,
    /// Number of sightings and progress entries dropped for lack of room.
    pub lost_sightings: u64,
    /// Number of handoffs dropped for lack of room.
    pub lost_handoffs: u64,
    /// Start of the first slice, the origin of the slices' times.
    pub began: Nanos,
    /// Time of this snapshot.
    pub until: Nanos,
}

pub(super) struct Capture {
    data: TraceData,
    /// One per VM.
    meters: Vec<Meter>,
    /// By vCPU, the index of its unfinished handoff.
    open_handoffs: Box<[Option<usize>]>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("data", &self.data).finish_non_exhaustive()
    }
}

impl Capture {
    pub(super) fn new(vcpus: usize) -> Self {
        let data = TraceData {
            sightings: Vec::with_capacity(CAPACITY),
            handoffs: Vec::with_capacity(CAPACITY),
            yields: Vec::new(),
            progress: Vec::with_capacity(CAPACITY),
            lost_sightings: 0,
            lost_handoffs: 0,
            began: Nanos::ZERO,
            until: Nanos::ZERO,
        };
        Self { data, meters: Vec::new(), open_handoffs: vec![None; vcpus].into() }
    }

    pub(super) fn set_meters(&mut self, meters: Vec<Meter>) {
        self.meters = meters;
    }

    fn read_meters(&mut self, now: Nanos) {
        let progress = &mut self.data.progress;
        if progress.last().is_some_and(|last| now.since(last.at) < METER_INTERVAL) {
            return;
        }
        for (vm, meter) in (0..).zip(&self.meters) {
            if progress.len() < progress.capacity() {
                progress.push(VmProgress { at: now, vm, done: meter() });
            } else {
                self.data.lost_sightings += 1;
            }
        }
    }

    /// Returns a copy of the recorded data with these times.
    pub(super) fn data(&self, began: Nanos, until: Nanos) -> TraceData {
        TraceData { began, until, ..self.data.clone() }
    }

    /// At some events, records the vCPU's activity and the VMs' progress.
    pub(super) fn observe(&mut self, vcpu: VcpuIndex, event: &Event, now: Nanos) {
        let (Event::Stopped(observation)
        | Event::StoppedInHlt(observation)
        | Event::Halted(observation)
        | Event::HandedOver(_, observation)
        | Event::SpunOut(observation)
        | Event::YieldsTo(_, observation)
        | Event::Point(_, observation)) = event
        else {
            return;
        };
        self.read_meters(now);
        let sightings = &mut self.data.sightings;
        if sightings.len() == sightings.capacity() {
            self.data.lost_sightings += 1;
        } else {
            sightings.push(Sighting { at: now, vcpu, activity: observation.activity });
        }
    }

    /// Records a kick that ends a halt of `to`.
    pub(super) fn record_kick(
        &mut self,
        to: VcpuIndex,
        by: Option<VcpuIndex>,
        released: Option<Nanos>,
        now: Nanos,
    ) {
        let handoffs = &mut self.data.handoffs;
        self.open_handoffs[to.ix()] = None;
        if handoffs.len() == handoffs.capacity() {
            self.data.lost_handoffs += 1;
        } else {
            self.open_handoffs[to.ix()] = Some(handoffs.len());
            handoffs.push(Handoff { at: now, by, to, released, granted: None, resumed: None });
        }
    }

    fn open_handoff(&mut self, vcpu: VcpuIndex) -> Option<&mut Handoff> {
        self.data.handoffs.get_mut(self.open_handoffs[vcpu.ix()]?)
    }

    /// Records that a kicked vCPU is granted a slot.
    pub(super) fn record_grant(&mut self, vcpu: VcpuIndex, now: Nanos) {
        if let Some(handoff) = self.open_handoff(vcpu) {
            handoff.granted = Some(now);
        }
    }

    /// Records that a granted vCPU has run. `resumed` is the time at which its guest resumed.
    pub(super) fn record_resume(&mut self, vcpu: VcpuIndex, resumed: Option<Nanos>) {
        if let Some(handoff) = self.open_handoff(vcpu) {
            handoff.resumed = resumed;
        }
        self.open_handoffs[vcpu.ix()] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::event::Observation;

    const VCPU: VcpuIndex = VcpuIndex(1);

    #[test]
    fn a_handoff_is_followed_to_the_guest() {
        let mut capture = Capture::new(2);
        capture.record_kick(VCPU, Some(VcpuIndex(0)), Some(Nanos(5)), Nanos(7));
        capture.record_grant(VCPU, Nanos(9));
        capture.record_resume(VCPU, Some(Nanos(12)));
        // Another slice, not preceded by a kick.
        capture.record_grant(VCPU, Nanos(20));
        capture.record_resume(VCPU, Some(Nanos(21)));
        let data = capture.data(Nanos(1), Nanos(30));
        let expected = Handoff {
            at: Nanos(7),
            by: Some(VcpuIndex(0)),
            to: VCPU,
            released: Some(Nanos(5)),
            granted: Some(Nanos(9)),
            resumed: Some(Nanos(12)),
        };
        assert_eq!(data.handoffs, [expected]);
        assert_eq!((data.began, data.until), (Nanos(1), Nanos(30)));
    }

    #[test]
    fn reads_progress_at_most_once_per_millisecond() {
        let mut capture = Capture::new(2);
        capture.set_meters(vec![Box::new(|| 5), Box::new(|| 7)]);
        for micros in [0, 10, 999, 1_000, 1_001, 5_000] {
            capture.observe(VCPU, &Event::Halted(Observation::default()), Nanos::micros(micros));
        }
        let progress = capture.data(Nanos::ZERO, Nanos::ZERO).progress;
        let readings: Vec<_> =
            progress.iter().map(|entry| (entry.at.0, entry.vm, entry.done)).collect();
        let times = [0, 1_000_000, 5_000_000];
        let expected: Vec<_> = times.iter().flat_map(|at| [(*at, 0, 5), (*at, 1, 7)]).collect();
        assert_eq!(readings, expected);
    }

    #[test]
    fn counts_entries_without_room() {
        let mut capture = Capture::new(2);
        capture.data.sightings = Vec::new();
        capture.data.handoffs = Vec::new();
        capture.observe(VCPU, &Event::Halted(Observation::default()), Nanos(1));
        capture.observe(VCPU, &Event::Yielded, Nanos(2));
        capture.record_kick(VCPU, None, None, Nanos(3));
        capture.record_grant(VCPU, Nanos(4));
        let data = capture.data(Nanos(0), Nanos(9));
        assert_eq!((data.lost_sightings, data.lost_handoffs), (1, 1));
        assert!(data.sightings.is_empty() && data.handoffs.is_empty());
    }
}
