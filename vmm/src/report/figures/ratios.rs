//! Each series over its baseline.

use std::collections::HashMap;

use super::{
    Figure, Legend, Mark, STYLES, build, names,
    scale::{Scale, Unit},
};
use crate::{
    lab::study::{Axis, Comparison, Study, compare::Outcome},
    report::study::{command, titles, words},
};

/// One figure for each kind of comparison.
pub(super) fn all(study: &Study) -> Vec<Figure> {
    Axis::ALL.into_iter().filter_map(|axis| of_axis(study, axis)).collect()
}

fn of_axis(study: &Study, axis: Axis) -> Option<Figure> {
    let all = || study.comparisons.iter().filter(move |its| its.axis == axis);
    let mut legend: Vec<Legend> = Vec::new();
    let mut panels = Vec::new();
    let mut of_panel: HashMap<String, usize> = HashMap::new();
    for comparison in all() {
        let Some(mark) = mark(study, comparison) else { continue };
        let (of, against) = names::sides(study, comparison);
        let name = format!("{of} / {against}");
        let of = &study.points[comparison.of].point;
        let panel = names::panel(study, of, names::surroundings(study, comparison));
        if legend.iter().all(|line| line.name != name) {
            // The first style is the baseline's in the figure of the throughput.
            let count = of_panel.entry(panel.clone()).or_insert(0);
            *count += 1;
            legend.push(Legend { style: *count % STYLES, name: name.clone() });
        }
        let style = legend.iter().find(|line| line.name == name).map_or(0, |line| line.style);
        build::add(&mut panels, panel, name, style, mark);
    }
    let ends = |mark: &Mark| {
        [Some(mark.y), mark.interval.map(|its| its.0), mark.interval.map(|its| its.1)]
    };
    let values = panels.iter().flat_map(|(_, series)| series).flat_map(|its| &its.marks);
    let values = values.flat_map(|mark| ends(mark).into_iter().flatten()).chain([1.0]);
    let label = format!("ratio of the medians of {}/s (log scale)", build::operations(study));
    let y = Scale::log(&label, Unit::Ratio, values);
    let points = all().flat_map(|its| [its.of, its.against]).map(|ix| &study.points[ix].point);
    Some(Figure {
        id: format!("ratio-{}", axis.name().replace(' ', "-")),
        title: titles::ratios(study, axis),
        note: "1x: as much as the baseline. Bars: bootstrapped 95 % intervals. Filled: the \
               difference is significant after Holm's correction for all comparisons of this \
               report. Hollow: it is not."
            .to_owned(),
        command: command::of(study, points),
        panels: build::finish(study, panels, &y, Some((1.0, "1x: no difference")))?,
        legend,
    })
}

fn mark(study: &Study, comparison: &Comparison) -> Option<Mark> {
    let ratio = comparison.ratio?;
    let outcome = comparison.outcome(&study.points);
    Some(Mark {
        x: study.points[comparison.of].point.overcommit(),
        y: ratio.value,
        interval: ratio.interval.map(|its| (its.low, its.high)),
        hollow: !matches!(outcome, Outcome::More | Outcome::Less),
        samples: Vec::new(),
        says: words::comparison(study, comparison),
    })
}
