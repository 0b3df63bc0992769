//! Ratios of each series to its baseline.

use std::collections::HashMap;

use super::{
    Figure, Legend, PlottedValue, RATIO, STYLES, build,
    scale::{AxisUnit, Scale},
};
use crate::{
    names,
    si::ratio,
    words::{command, sentences, titles},
};
use study::findings::{Axis, Comparison, Study, compare::Outcome};

/// One figure per kind of comparison.
pub(super) fn figures(study: &Study) -> Vec<Figure> {
    Axis::ALL.into_iter().filter_map(|axis| axis_figure(study, axis)).collect()
}

fn axis_figure(study: &Study, axis: Axis) -> Option<Figure> {
    let comparisons = || study.comparisons.iter().filter(move |comparison| comparison.axis == axis);
    let mut legend: Vec<Legend> = Vec::new();
    let mut marks = Vec::new();
    let mut of_panel: HashMap<String, usize> = HashMap::new();
    let study_legend = build::legend(study);
    for comparison in comparisons() {
        let Some(mark) = mark(study, comparison) else { continue };
        let (panel, name) = place(study, comparison);
        if legend.iter().all(|line| line.name != name) {
            // Style 0 belongs to the baseline in the throughput figure.
            let count = of_panel.entry(panel.clone()).or_insert(0);
            *count += 1;
            let style = build::style_of(&study_legend, &name).unwrap_or(*count % STYLES);
            legend.push(Legend { style, name: name.clone() });
        }
        let style = build::style_of(&legend, &name).unwrap_or(0);
        marks.push((panel, ((name, style), mark)));
    }
    let panels = build::in_panels(marks.into_iter());
    let ends = |mark: &PlottedValue| {
        [
            Some(mark.y),
            mark.interval.map(|interval| interval.0),
            mark.interval.map(|interval| interval.1),
        ]
    };
    let values = panels.iter().flat_map(|(_, series)| series).flat_map(|line| &line.marks);
    let values = values.flat_map(|mark| ends(mark).into_iter().flatten()).chain([1.0]);
    let y = Scale::log(&label(study, axis), AxisUnit::Ratio, values);
    let points = comparisons()
        .flat_map(|comparison| [comparison.subject, comparison.against])
        .map(|ix| &study.points[ix].point);
    Some(Figure {
        id: format!("{RATIO}{}", axis.name().replace(' ', "-")),
        title: titles::ratios(study, axis),
        note: "1x: as much as the baseline. Bars: 95 % intervals. Filled: the \
               difference is significant after Holm's correction for all comparisons of this \
               report. Hollow: it is not."
            .to_owned(),
        command: command::rerun_commands(study, points),
        panels: build::finish(study, panels, &y, Some((1.0, "1x: no difference")))?,
        legend: build::without_unnamed(legend),
    })
}

/// The panel and the series of a comparison.
fn place(study: &Study, comparison: &Comparison) -> (String, String) {
    let point = &study.points[comparison.subject].point;
    let (subject, against) = names::sides(study, comparison);
    let (surroundings, name) = if !names::is_along_x(study, comparison) {
        (names::surroundings(study, comparison), format!("{subject} / {against}"))
    } else if comparison.axis == Axis::Lock {
        // The axis of the charts names the subject, and the panel names the baseline.
        let over = format!("over {against}");
        let surroundings = [names::facet(study, point), over].into_iter();
        let surroundings: Vec<String> = surroundings.filter(|part| !part.is_empty()).collect();
        (surroundings.join(", "), names::series(study, point))
    } else {
        (names::facet(study, point), names::series(study, point))
    };
    (names::panel(study, point, surroundings), name)
}

/// The label of the ratio axis. It includes the baseline if all ratios share it and neither
/// series nor panels name it.
fn label(study: &Study, axis: Axis) -> String {
    let mut comparisons = study.comparisons.iter().filter(|comparison| comparison.axis == axis);
    let baseline = |comparison: &Comparison| {
        names::is_along_x(study, comparison).then(|| names::sides(study, comparison).1)
    };
    let first = comparisons.next().and_then(baseline);
    let over = match first
        .filter(|first| comparisons.all(|comparison| baseline(comparison).as_ref() == Some(first)))
    {
        Some(baseline) => format!(" to {baseline}"),
        None => String::new(),
    };
    format!("ratio of the medians of {}/s{over} (log scale)", build::operations(study))
}

fn mark(study: &Study, comparison: &Comparison) -> Option<PlottedValue> {
    let estimate = comparison.ratio?;
    let hollow = !matches!(comparison.outcome(), Outcome::More | Outcome::Less);
    let note = ratio(estimate.value);
    Some(PlottedValue {
        y: estimate.value,
        note: if hollow { format!("{note}, unclear") } else { note },
        interval: estimate.interval.map(|interval| (interval.low, interval.high)),
        hollow,
        tooltip: sentences::comparison(study, comparison),
        ..PlottedValue::at_point(study, &study.points[comparison.subject].point)
    })
}
