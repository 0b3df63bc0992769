//! Notes on points: facts that have no column in a table.

use super::{disturbed, tables::Table};
use crate::{faults::summary, names, replay, si::si, work};
use base::{backend::PvBackend, plural::count};
use study::{
    findings::{PointStudy, Study, point::SimRates},
    point::{GuestKind, Point},
};

/// The notes of all points.
pub(super) fn table(study: &Study) -> Option<Table> {
    let mut table = Table::new("notes", "Notes", "", &["point", "note"]);
    table.figures_from = usize::MAX;
    for point in &study.points {
        for note in of_point(point) {
            table.cells([names::full_name(study, &point.point), note]);
        }
    }
    table.with_headings().nonempty()
}

/// Hits, replays, bounds, yields that were not observed, disturbances, long waits, faults, host extras, work.
fn of_point(point: &PointStudy) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(hits) = point.preempted.and_then(|preempted| preempted.hits) {
        let checks = count(hits.hits.saturating_add(hits.misses), "check");
        notes.push(match hits.hits {
            0 => format!("no preemption: {checks} found no target"),
            hits => format!("{}, all on target; {checks} for a target", count(hits, "preemption")),
        });
    }
    notes.extend(
        point.preempted.and_then(|preempted| preempted.divergence).as_ref().map(replay::summary),
    );
    if let Some(preempted) = point.preempted.filter(|preempted| preempted.entering > 0.0) {
        let (prefix, entering) = (preempted.in_lock.prefix(), si(preempted.entering));
        notes.push(format!("{prefix}LHP/s and LWP/s may be {entering} more in total"));
    }
    if let Some(lost) = point.preempted.map(|preempted| preempted.lost).filter(|lost| *lost > 0) {
        let records = count(lost, "lost record");
        notes.push(format!("LHP/s, LWP/s, queued/s and wasted are too low: {records}"));
    }
    let may_yield = point.point.guest == GuestKind::Linux || point.point.backend == PvBackend::Kvm;
    let no_yields = point.no_yields.as_ref().filter(|_| may_yield);
    notes.extend(no_yields.map(|reason| format!("yields are not observed: {reason}")));
    notes.extend(disturbed::notes(point));
    if let Some(waits) = point.long_waits {
        notes.push(format!("{} waits/s for any lock reached the threshold", si(waits)));
    }
    if point.halts.is_none() {
        notes.push(
            "halts/s, kicks/s: this kernel does not count them (CONFIG_LOCK_EVENT_COUNTS)".into(),
        );
    }
    notes.extend(point.faults.as_ref().map(summary));
    notes.extend(point.sim.and_then(|sim| host_extras(&point.point, sim)));
    notes.extend(work::lines(point));
    notes
}

/// Effects of the simulated host's extras, if any are enabled.
fn host_extras(point: &Point, sim: SimRates) -> Option<String> {
    let SimRates { pause_exits, polled, stolen } = sim;
    let stolen = stolen / f64::from(point.slots);
    let ple = point.ple.map(|_| format!("{} pause-loop exits/s", si(pause_exits)));
    let polls = point.halt_poll.map(|_| format!("{} halts/s ended by polling", si(polled)));
    let noise = point.noise.map(|_| format!("{:.1} % of the CPUs' time stolen", stolen * 100.0));
    let parts: Vec<String> = [ple, polls, noise].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
