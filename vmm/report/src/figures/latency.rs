//! Distributions of times, one row each.

use super::{
    Figure, Legend, PlotRow, build,
    scale::{AxisUnit, Scale, time},
};
use crate::{
    names,
    words::{command, titles},
};
use study::findings::{PointStudy, Study, Timed, point::Times};

/// Number of steps of a distribution over the entire axis.
const STEPS: usize = 90;

/// Marker styles of the percentiles.
const PERCENTILES: [(usize, &str); 4] = [(0, "median"), (3, "p99"), (2, "p99.9"), (5, "longest")];

/// One figure per kind of time that the study has samples of.
pub(super) fn figures(study: &Study) -> Vec<Figure> {
    Timed::ALL.into_iter().filter_map(|timed| figure(study, timed)).collect()
}

fn figure(study: &Study, timed: Timed) -> Option<Figure> {
    let points =
        || study.points.iter().filter_map(move |point| Some((point, point.times_of(timed)?)));
    let ends = points().flat_map(|(_, times)| {
        let nanos = times.timings.pairs().iter().filter(|(_, count)| *count > 0);
        nanos.map(|(nanos, _)| (*nanos).max(1) as f64)
    });
    let x = Scale::log(titles::timed(timed).1, AxisUnit::Time, ends);
    let legend = build::legend(study);
    let rows = points().map(|(point, times)| {
        let name = names::series(study, &point.point);
        let style = build::style_of(&legend, &name).unwrap_or(0);
        (names::facet(study, &point.point), row(study, point, times, &x, style))
    });
    let panels = build::rows(rows, &x);
    (!panels.is_empty()).then(|| Figure {
        id: titles::timed(timed).0.to_owned(),
        title: titles::times(study, timed),
        note: "Each row: how the times are distributed, all repetitions together, its highest \
               step full height; 1ns stands for no time at all. Written: median and p99."
            .to_owned(),
        legend: PERCENTILES.map(|(style, name)| Legend { style, name: name.to_owned() }).to_vec(),
        command: command::rerun_commands(study, points().map(|(point, _)| &point.point)),
        panels,
    })
}

fn row(study: &Study, point: &PointStudy, times: &Times, x: &Scale, style: usize) -> PlotRow {
    let percentiles = times.percentiles;
    let values = [percentiles.p50, percentiles.p99, percentiles.p999, percentiles.max]
        .map(|nanos| nanos.0 as f64);
    let [p50, p99, p999, max] = values.map(time);
    let (group, label) = build::row_names(study, &point.point);
    PlotRow {
        group,
        label,
        note: format!("{p50}, p99 {p99}"),
        style,
        span: Some((values[0], values[3])),
        marks: PERCENTILES.iter().map(|(kind, _)| *kind).zip(values).collect(),
        ridge: ridge(times, x),
        tooltip: format!(
            "{}: median {p50}, p99 {p99}, p99.9 {p999}, longest {max}",
            names::full_name(study, &point.point)
        ),
        ..PlotRow::default()
    }
}

fn ridge(times: &Times, x: &Scale) -> Vec<f64> {
    let mut heights = vec![0.0; STEPS];
    for (nanos, count) in times.timings.pairs() {
        let step = (x.position((*nanos).max(1) as f64) * STEPS as f64) as usize;
        heights[step.min(STEPS - 1)] += *count as f64;
    }
    let high = heights.iter().copied().fold(0.0, f64::max);
    heights.iter().map(|height| if high > 0.0 { height / high } else { 0.0 }).collect()
}
