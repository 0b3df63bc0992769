//! Builds the timeline of a run from the records of its machines and its schedule.

use sched::log::Turn;
use study::timeline::{DroppedEntries, ProgressUnit, ScheduleTrace, TimeSpan, Timeline};

use crate::cell::RunSpec;
use base::{events::VcpuEvent, units::Nanos};
use machine::{driver::SchedReport, vcpu::recorder::History};

/// Builds the timeline from the records of the machines of `run` and, if pvticket scheduled them,
/// from the records of their schedule. None if the run was not traced.
pub(super) fn timeline(
    run: &RunSpec<'_>,
    histories: Vec<Option<History>>,
    schedule: Option<&SchedReport>,
    mut span: TimeSpan,
) -> Option<Timeline> {
    let histories: Vec<History> = histories.into_iter().collect::<Option<_>>()?;
    let mut lost = DroppedEntries::default();
    let (mut events, mut late, mut progress) = (Vec::new(), Vec::new(), Vec::new());
    for history in histories {
        lost.events += history.lost;
        events.extend(history.vcpus);
        late.extend(history.late);
    }
    let schedule = schedule.and_then(|report| {
        let captured = report.captured.as_ref()?;
        // The threads continue after the account was taken, until their machines stop.
        span.to = captured.until;
        lost.turns = report.recording.lost;
        lost.preemptions = report.totals.preemptions - report.preemptions.len() as u64;
        lost.sightings = captured.lost_sightings;
        lost.handoffs = captured.lost_handoffs;
        progress.clone_from(&captured.progress);
        let turns = report.recording.turns.iter();
        Some(ScheduleTrace {
            cpus: run.cpus.cpus().to_vec(),
            turns: turns.map(|turn| Turn { at: captured.began.after(turn.at), ..*turn }).collect(),
            preemptions: report.preemptions.clone(),
            sightings: captured.sightings.clone(),
            handoffs: captured.handoffs.clone(),
            totals: report.totals,
        })
    });
    let is_in = |(at, _): &(Nanos, VcpuEvent)| *at <= span.to;
    events.iter_mut().chain([&mut late]).for_each(|list| list.retain(is_in));
    let machines = (0..).zip(run.point.sizes());
    let vcpus = machines.flat_map(|(vm, vcpus)| vcpus.ids().map(move |id| (vm, id))).collect();
    let counted = ProgressUnit::default();
    Some(Timeline { vcpus, span, measured: None, schedule, events, late, progress, counted, lost })
}
