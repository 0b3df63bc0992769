//! Builds the timeline of a cell from the records of its machines and its schedule.

use sched::log::Slice;
use study::timeline::{DroppedEntries, ProgressUnit, ScheduleTrace, TimeSpan, Timeline};

use crate::cell::RunSpec;
use base::{events::VcpuEvent, units::Nanos};
use machine::{driver::SchedReport, vcpu::recorder::History};

/// Builds the timeline from the records of the machines of `run` and, if known,
/// from the records of their schedule. None if the run was not traced.
pub(super) fn timeline(
    run: &RunSpec<'_>,
    histories: Vec<Option<History>>,
    schedule: Option<&SchedReport>,
    mut span: TimeSpan,
) -> Option<Timeline> {
    let histories: Vec<History> = histories.into_iter().collect::<Option<_>>()?;
    let mut lost = DroppedEntries::default();
    let (mut events, mut delayed_kicks, mut progress) = (Vec::new(), Vec::new(), Vec::new());
    for history in histories {
        lost.events += history.lost;
        events.extend(history.vcpus);
        delayed_kicks.extend(history.delayed);
    }
    let schedule = schedule.and_then(|report| {
        let captured = report.captured.as_ref()?;
        // The threads continue after the account was taken, until their machines stop.
        span.to = captured.until;
        lost.slices = report.recording.lost;
        lost.preemptions = report.totals.preemptions - report.preemptions.len() as u64;
        lost.activity_samples = captured.lost_sightings;
        lost.handoffs = captured.lost_handoffs;
        let yields = report.totals.directed.all();
        lost.events += yields.saturating_sub(captured.yields.len() as u64);
        progress.clone_from(&captured.progress);
        let slices = report.recording.slices.iter();
        let since_boot = |slice: &Slice| Slice { at: captured.began.after(slice.at), ..*slice };
        Some(ScheduleTrace {
            cpus: run.cpus.cpus().to_vec(),
            slices: slices.map(since_boot).collect(),
            preemptions: report.preemptions.clone(),
            activity_samples: captured.sightings.clone(),
            handoffs: captured.handoffs.clone(),
            yields: captured.yields.clone(),
            totals: report.totals,
        })
    });
    let is_in = |(at, _): &(Nanos, VcpuEvent)| *at <= span.to;
    events.iter_mut().chain([&mut delayed_kicks]).for_each(|list| list.retain(is_in));
    let machines = (0..).zip(run.point.sizes());
    let vcpus = machines.flat_map(|(vm, vcpus)| vcpus.ids().map(move |id| (vm, id))).collect();
    Some(Timeline {
        vcpus,
        span,
        measured: None,
        schedule,
        events,
        delayed_kicks,
        progress,
        progress_unit: ProgressUnit::default(),
        lost,
    })
}
