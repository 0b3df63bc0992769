//! The figure that compares two runs: one ratio per point.

use super::{
    Figure, Panel, Plot, PlotRow, Rows,
    scale::{AxisUnit, Scale},
};
use crate::{
    names,
    si::{ratio, si},
    words::{diff::title, sentences},
};
use study::findings::{Diff, diff::ComparedPoint};

/// One row per common point; `None` without ratios.
pub fn figure(diff: &Diff) -> Option<Figure> {
    let ends = diff.compared.iter().filter_map(|both| both.ratio).flat_map(|estimate| {
        let within = estimate.interval.map(|interval| [interval.low, interval.high]);
        [estimate.value].into_iter().chain(within.into_iter().flatten())
    });
    let label = "second run over the first (log scale)";
    let x = Scale::log(label, AxisUnit::Ratio, ends.chain([1.0]));
    let rows: Vec<PlotRow> = diff.compared.iter().filter_map(|both| row(diff, both)).collect();
    (!rows.is_empty()).then(|| Figure {
        id: "ratios".to_owned(),
        title: title(diff),
        note: "1x: as much as in the first run. Bars: 95 % intervals. Filled: the \
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

fn row(diff: &Diff, both: &ComparedPoint) -> Option<PlotRow> {
    let estimate = both.ratio?;
    let name = names::full_name(&diff.before, &both.point);
    let p = sentences::p(both.verdict.adjusted);
    let style = if both.verdict.significant { usize::from(estimate.value < 1.0) } else { 6 };
    Some(PlotRow {
        note: format!("{}, p {p}", ratio(estimate.value)),
        tooltip: format!(
            "{name}: {} to {}, {} (p {p})",
            si(both.before.median.value),
            si(both.after.median.value),
            sentences::estimate(&estimate)
        ),
        label: name,
        style,
        span: estimate.interval.map(|interval| (interval.low, interval.high)),
        marks: vec![(style, estimate.value)],
        hollow: !both.verdict.significant,
        ..PlotRow::default()
    })
}
