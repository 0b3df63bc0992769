//! The figure of two runs: a ratio a point.

use super::{
    Figure, Panel, Plot, Row, Rows, names,
    scale::{Scale, Unit},
};
use crate::{
    lab::study::{Diff, diff::Both},
    report::{
        si::{ratio, si},
        study::{diff::title, words},
    },
};

/// None if both have nothing in common.
pub fn figure(diff: &Diff) -> Option<Figure> {
    let ends = diff.both.iter().filter_map(|its| its.ratio).flat_map(|its| {
        let within = its.interval.map(|its| [its.low, its.high]);
        [its.value].into_iter().chain(within.into_iter().flatten())
    });
    let label = "second run over the first (log scale)";
    let x = Scale::log(label, Unit::Ratio, ends.chain([1.0]));
    let rows: Vec<Row> = diff.both.iter().filter_map(|its| row(diff, its)).collect();
    (!rows.is_empty()).then(|| Figure {
        id: "ratios".to_owned(),
        title: title(diff),
        note: "1x: as much as in the first run. Bars: bootstrapped 95 % intervals. Filled: the \
               difference is significant after Holm's correction for all points. Hollow: it is not."
            .to_owned(),
        legend: Vec::new(),
        panels: vec![Panel {
            title: String::new(),
            plot: Plot::Rows(Rows { x, rows, reference: Some(1.0) }),
        }],
        command: String::new(),
    })
}

fn row(diff: &Diff, its: &Both) -> Option<Row> {
    let estimate = its.ratio?;
    let name = names::whole(&diff.before, &its.point);
    let p = words::p(its.verdict.adjusted);
    Some(Row {
        note: format!("{}, p {p}", ratio(estimate.value)),
        says: format!(
            "{name}: {} to {}, {} (p {p})",
            si(its.before.median.value),
            si(its.after.median.value),
            words::estimate(&estimate)
        ),
        label: name,
        style: if !its.verdict.significant { 6 } else { usize::from(estimate.value < 1.0) },
        span: estimate.interval.map(|its| (its.low, its.high)),
        marks: vec![(0, estimate.value)],
        hollow: !its.verdict.significant,
        ..Row::default()
    })
}
