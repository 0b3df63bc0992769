//! Which figures a study has: throughput over the overcommit ratio first.

use std::collections::HashMap;

use super::{
    Figure, Legend, Lines, Mark, Panel, Plot, Row, Rows, STYLES, Series, latency, names, preempted,
    ratios,
    scale::{Scale, Unit},
};
use crate::{
    lab::{
        stats::Summary,
        study::{PointStudy, Study},
    },
    report::{
        si::si,
        study::{command, titles, words},
    },
};

/// All figures that there is something to show in.
pub fn all(study: &Study) -> Vec<Figure> {
    let mut figures = Vec::new();
    figures.extend(throughput(study));
    figures.extend(ratios::all(study));
    figures.extend(preempted::wasted(study));
    figures.extend(preempted::kinds(study));
    figures.extend(latency::all(study));
    figures
}

/// The axis of the overcommit ratio.
pub(super) fn over(values: impl Iterator<Item = f64>) -> Scale {
    Scale::steps("vCPUs for each CPU (overcommit ratio, log scale)", Unit::Ratio, values)
}

/// What the operations of a study are.
pub(super) fn operations(study: &Study) -> &'static str {
    words::operations(study)
}

fn throughput(study: &Study) -> Option<Figure> {
    let legend = legend(study);
    let marks = |point: &PointStudy| Some(mark(study, point, &point.rate?));
    let panels = panels(study, &legend, marks);
    let values = panels.iter().flat_map(|(_, series)| series).flat_map(|its| &its.marks);
    let values = values.flat_map(|mark| mark.samples.iter().map(|(rate, _)| *rate));
    let label = format!("{} a second (log scale)", operations(study));
    let y = Scale::log(&label, Unit::Count, values);
    Some(Figure {
        id: "throughput".to_owned(),
        title: titles::throughput(study),
        note: "Markers: medians. Bars: their exact 95 % intervals, from six repetitions on. Dots: \
               single repetitions; rings are far from the others, and count all the same."
            .to_owned(),
        command: command::of(study, study.points.iter().map(|study| &study.point)),
        panels: finish(study, panels, &y, None)?,
        legend,
    })
}

fn mark(study: &Study, point: &PointStudy, rate: &Summary) -> Mark {
    let interval = rate.median.interval.map(|its| (its.low, its.high));
    let within = interval.map_or_else(
        || format!("{} repetitions: too few for an interval", rate.count),
        |(low, high)| format!("95 % {} .. {}, {} repetitions", si(low), si(high), rate.count),
    );
    Mark {
        x: point.point.overcommit(),
        y: rate.median.value,
        interval,
        hollow: false,
        samples: point.repetitions.iter().map(|its| (its.rate, its.outlier)).collect(),
        says: format!(
            "{}: {} {}/s ({within})",
            names::whole(study, &point.point),
            si(rate.median.value),
            operations(study)
        ),
    }
}

/// Each lock of the study, in order. Locks of another family are in another panel, and may look like
/// these.
pub(super) fn legend(study: &Study) -> Vec<Legend> {
    let mut legend: Vec<Legend> = Vec::new();
    let mut of_family: HashMap<&str, usize> = HashMap::new();
    for point in &study.points {
        let name = names::series(&point.point);
        if legend.iter().all(|line| line.name != name) {
            let count = of_family.entry(names::plural(point.point.lock.family())).or_default();
            legend.push(Legend { style: *count % STYLES, name });
            *count += 1;
        }
    }
    legend
}

/// Facets with their series: what `marks` makes of each point.
pub(super) fn panels(
    study: &Study,
    legend: &[Legend],
    marks: impl Fn(&PointStudy) -> Option<Mark>,
) -> Vec<(String, Vec<Series>)> {
    let mut panels: Vec<(String, Vec<Series>)> = Vec::new();
    for point in &study.points {
        let Some(mark) = marks(point) else { continue };
        let facet = names::panel(study, &point.point, names::facet(study, &point.point));
        let name = names::series(&point.point);
        let style = legend.iter().find(|line| line.name == name).map_or(0, |line| line.style);
        add(&mut panels, facet, name, style, mark);
    }
    panels
}

/// Adds a mark to its series in its panel.
pub(super) fn add(
    panels: &mut Vec<(String, Vec<Series>)>,
    facet: String,
    name: String,
    style: usize,
    mark: Mark,
) {
    let panel = panels.iter().position(|(title, _)| *title == facet).unwrap_or_else(|| {
        panels.push((facet, Vec::new()));
        panels.len() - 1
    });
    let all = &mut panels[panel].1;
    match all.iter_mut().find(|series| series.name == name) {
        Some(series) => series.marks.push(mark),
        None => all.push(Series { name, style, marks: vec![mark] }),
    }
}

/// Panels with common axes; None if there are none.
pub(super) fn finish(
    study: &Study,
    panels: Vec<(String, Vec<Series>)>,
    y: &Scale,
    reference: Option<(f64, &'static str)>,
) -> Option<Vec<Panel>> {
    let x = over(study.points.iter().map(|study| study.point.overcommit()));
    let panel = |(title, mut series): (String, Vec<Series>)| {
        for its in &mut series {
            its.marks.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        Panel { title, plot: Plot::Lines(Lines { x: x.clone(), y: y.clone(), series, reference }) }
    };
    let panels: Vec<Panel> = panels.into_iter().map(panel).collect();
    (!panels.is_empty()).then_some(panels)
}

/// Panels of rows, each row with its panel's title, with a common axis.
pub(super) fn rows(all: impl Iterator<Item = (String, Row)>, x: &Scale) -> Vec<Panel> {
    let mut panels: Vec<(String, Vec<Row>)> = Vec::new();
    for (facet, row) in all {
        match panels.iter_mut().find(|(title, _)| *title == facet) {
            Some((_, rows)) => rows.push(row),
            None => panels.push((facet, vec![row])),
        }
    }
    let plot = |rows| Plot::Rows(Rows { x: x.clone(), rows, reference: None });
    panels.into_iter().map(|(title, rows)| Panel { title, plot: plot(rows) }).collect()
}
