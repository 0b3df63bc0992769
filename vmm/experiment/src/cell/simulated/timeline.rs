//! The timeline of a simulation: turns, preemptions with what they met, kicks that ended a halt, and
//! operations. What a vCPU does within a turn is not kept: there are no exits and lock sections in it.

use sim::{Kept, Sim};
use study::{
    point::Point,
    timeline::{DroppedEntries, ProgressUnit, ScheduleTrace, TimeSpan, Timeline},
};

use base::units::Nanos;
use sched::log::VmProgress;

/// The operations of each machine by now.
pub(super) fn progress(sim: &Sim, point: &Point) -> Vec<VmProgress> {
    let (at, operations) = (sim.clock(), sim.operations_by_vcpu());
    let done = operations.chunks(point.vcpus.get() as usize).map(|vcpus| vcpus.iter().sum());
    (0..).zip(done).map(|(vm, done)| VmProgress { at, vm, done }).collect()
}

/// The timeline of a simulation that was measured from `from` to its present time.
pub(super) fn timeline(
    sim: &Sim,
    point: &Point,
    from: Nanos,
    progress: Vec<VmProgress>,
) -> Timeline {
    let Kept { now, turns, lost_turns, preemptions, handoffs, lost_handoffs, totals } = sim.kept();
    let lost = DroppedEntries {
        turns: lost_turns,
        handoffs: lost_handoffs,
        preemptions: totals.preemptions - preemptions.len() as u64,
        ..DroppedEntries::default()
    };
    let vcpus: Vec<_> =
        (0..point.vms).flat_map(|vm| point.vcpus.ids().map(move |id| (vm, id))).collect();
    Timeline {
        events: vec![Vec::new(); vcpus.len()],
        vcpus,
        span: TimeSpan { from: Nanos::ZERO, to: now },
        measured: Some(TimeSpan { from, to: now }),
        schedule: Some(ScheduleTrace {
            cpus: (0..point.slots as usize).collect(),
            turns,
            preemptions,
            sightings: Vec::new(),
            handoffs,
            totals,
        }),
        late: Vec::new(),
        progress,
        counted: ProgressUnit::Operations,
        lost,
    }
}
