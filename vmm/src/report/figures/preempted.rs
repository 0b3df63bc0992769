//! What a schedule's preemptions hit, and what was spun in vain for it.

use super::{
    Figure, Legend, Mark, Row, build, names,
    scale::{Scale, Unit},
};
use crate::{
    lab::study::{PointStudy, Study, point::Preempted},
    report::{
        si::{percent, si},
        study::{command, titles},
    },
};

fn scheduled(study: &Study) -> impl Iterator<Item = (&PointStudy, Preempted)> {
    study.points.iter().filter_map(|point| Some((point, point.preempted?)))
}

/// The share of the slots' time that was spun in vain.
pub(super) fn wasted(study: &Study) -> Option<Figure> {
    let legend = build::legend(study);
    let mark = |point: &PointStudy| {
        let preempted = point.preempted?;
        Some(Mark {
            x: point.point.overcommit(),
            y: preempted.wasted_share,
            interval: None,
            hollow: false,
            samples: Vec::new(),
            says: format!(
                "{}: {} of the slots' time",
                names::whole(study, &point.point),
                percent(preempted.wasted_share)
            ),
        })
    };
    let panels = build::panels(study, &legend, mark);
    let y = Scale::share("share of the slots' time spun in vain");
    Some(Figure {
        id: "wasted".to_owned(),
        title: titles::wasted(study),
        note: "Spun in vain: while the lock's holder, or the next in line, was off its CPU. Known \
               from the guests' telemetry and the schedule; of the host's scheduler nobody knows."
            .to_owned(),
        command: command::of(study, scheduled(study).map(|(point, _)| &point.point)),
        panels: build::finish(study, panels, &y, None)?,
        legend,
    })
}

/// What preemptions hit.
pub(super) fn kinds(study: &Study) -> Option<Figure> {
    let most = scheduled(study).map(|(_, its)| its.lhp + its.lwp + its.queued + its.other);
    let x = Scale::linear("preemptions a second", Unit::Count, most);
    let rows = scheduled(study)
        .map(|(point, its)| (names::facet(study, &point.point), row(study, point, its)));
    let panels = build::rows(rows, &x);
    let names = ["lock holder (LHP)", "next in line (LWP)", "further back in line", "others"];
    (!panels.is_empty()).then(|| Figure {
        id: "preemptions".to_owned(),
        title: titles::preempted(study),
        note: "Each preemption is classified from the guest's telemetry after its vCPU has \
               stopped. Others: no lock held or awaited, or not known."
            .to_owned(),
        legend: [1, 0, 4, 6]
            .into_iter()
            .zip(names)
            .map(|(style, name)| Legend { style, name: name.to_owned() })
            .collect(),
        command: command::of(study, scheduled(study).map(|(point, _)| &point.point)),
        panels,
    })
}

fn row(study: &Study, point: &PointStudy, its: Preempted) -> Row {
    let note = format!("LHP {}/s  LWP {}/s", si(its.lhp), si(its.lwp));
    Row {
        label: names::within(&point.point),
        says: format!(
            "{}: {note}, {}/s further back in line, {}/s others",
            names::whole(study, &point.point),
            si(its.queued),
            si(its.other)
        ),
        note,
        segments: vec![(1, its.lhp), (0, its.lwp), (4, its.queued), (6, its.other)],
        ..Row::default()
    }
}
