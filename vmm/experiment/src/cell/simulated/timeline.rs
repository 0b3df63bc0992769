//! Timeline of a simulation: time slices, preemptions and the lock states they hit, kicks that ended a
//! halt, and operations. Events within a slice (exits, lock sections) are not kept.

use sim::{ScheduleRecord, Sim};
use study::{
    point::Point,
    timeline::{DroppedEntries, ProgressUnit, ScheduleTrace, TimeSpan, Timeline},
};

use base::units::Nanos;
use sched::log::VmProgress;

/// Returns the operations of each machine so far.
pub(super) fn progress(sim: &Sim, point: &Point) -> Vec<VmProgress> {
    let (at, operations) = (sim.clock(), sim.operations_by_vcpu());
    let done = operations.chunks(point.vcpus.get() as usize).map(|vcpus| vcpus.iter().sum());
    (0..).zip(done).map(|(vm, done)| VmProgress { at, vm, done }).collect()
}

/// Returns the timeline of a simulation that was measured from `from` to its current time.
pub(super) fn timeline(
    sim: &Sim,
    point: &Point,
    from: Nanos,
    progress: Vec<VmProgress>,
) -> Timeline {
    let ScheduleRecord { now, slices, lost_slices, preemptions, handoffs, lost_handoffs, totals } =
        sim.schedule_record();
    let lost = DroppedEntries {
        slices: lost_slices,
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
            slices,
            preemptions,
            activity_samples: Vec::new(),
            handoffs,
            yields: Vec::new(),
            totals,
        }),
        delayed_kicks: Vec::new(),
        progress,
        progress_unit: ProgressUnit::Operations,
        lost,
    }
}
