//! Preemptions by lock state, and time wasted by spinning.

use super::{
    Figure, Legend, PlotRow, PlottedValue, build,
    scale::{AxisUnit, Scale},
};
use crate::{
    names,
    si::{percent, si},
    words::{command, titles},
};
use study::findings::{InLock, PointStudy, Study, point::Preempted};

/// A kind of preemption: style, name, and rate per second.
type PreemptionKind = (usize, &'static str, fn(&Preempted) -> f64);

const KINDS: [PreemptionKind; 4] = [
    (1, "lock holder (LHP)", |preempted| preempted.in_lock.lhp),
    (0, "next in line (LWP)", |preempted| preempted.in_lock.lwp),
    (4, "further back in line", |preempted| preempted.in_lock.queued),
    (6, "others", |preempted| preempted.other),
];

fn scheduled(study: &Study) -> impl Iterator<Item = (&PointStudy, Preempted)> {
    study.points.iter().filter_map(|point| Some((point, point.preempted?)))
}

/// The wasted share of the slots' time.
pub(super) fn wasted(study: &Study) -> Option<Figure> {
    let legend = build::legend(study);
    let mark = |point: &PointStudy| {
        let share = point.wasted_share()?;
        Some(PlottedValue {
            y: share,
            note: percent(share),
            tooltip: format!(
                "{}: {} of the slots' time",
                names::full_name(study, &point.point),
                percent(share)
            ),
            ..PlottedValue::at_point(study, &point.point)
        })
    };
    let panels = build::panels(study, &legend, mark);
    let y = Scale::share("share of the slots' time wasted");
    Some(Figure {
        id: "wasted".to_owned(),
        title: titles::wasted(study),
        note:
            "Wasted: spun while the lock's holder, or the next in line, was off its CPU. Computed \
               from the guests' telemetry and the schedule; unknown under the host's scheduler."
                .to_owned(),
        command: command::rerun_commands(study, scheduled(study).map(|(point, _)| &point.point)),
        panels: build::finish(study, panels, &y, None)?,
        legend: build::without_unnamed(legend),
    })
}

/// Preemptions by kind.
pub(super) fn kinds(study: &Study) -> Option<Figure> {
    let counts =
        scheduled(study).flat_map(|(_, preempted)| KINDS.map(|(_, _, count)| count(&preempted)));
    let x = Scale::log("preemptions a second (log scale)", AxisUnit::Count, counts);
    let rows = scheduled(study).map(|(point, preempted)| {
        (names::facet(study, &point.point), row(study, point, preempted))
    });
    let panels = build::rows(rows, &x);
    (!panels.is_empty()).then(|| Figure {
        id: "preemptions".to_owned(),
        title: titles::preempted(study),
        note: "Each preemption is classified from the guest's telemetry after its vCPU has \
               stopped, or as observed. Others: no lock held or awaited, or not known. What did not occur has no \
               mark."
            .to_owned(),
        legend: KINDS.map(|(style, name, _)| Legend { style, name: name.to_owned() }).to_vec(),
        command: command::rerun_commands(study, scheduled(study).map(|(point, _)| &point.point)),
        panels,
    })
}

fn row(study: &Study, point: &PointStudy, preempted: Preempted) -> PlotRow {
    let InLock { lhp, lwp, queued, .. } = preempted.in_lock;
    let prefix = preempted.in_lock.prefix();
    let note = format!("{prefix}LHP {}/s  LWP {}/s  queued {}/s", si(lhp), si(lwp), si(queued));
    let (group, label) = build::row_names(study, &point.point);
    let counts = KINDS.iter().map(|(style, _, count)| (*style, count(&preempted)));
    PlotRow {
        group,
        label,
        tooltip: format!(
            "{}: {note}, {}/s others",
            names::full_name(study, &point.point),
            si(preempted.other)
        ),
        note,
        // In reverse order, so that the first kinds are on top.
        marks: counts.filter(|(_, count)| *count > 0.0).rev().collect(),
        ..PlotRow::default()
    }
}
