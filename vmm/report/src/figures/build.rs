//! Selection of the figures of a study: throughput over the overcommit ratio first.

use std::collections::HashMap;

use super::{
    Figure, Legend, Lines, Panel, Plot, PlotRow, PlottedValue, Rows, STYLES, Series, THROUGHPUT,
    latency, preempted, ratios,
    scale::{AxisUnit, Scale},
};
use crate::{
    lists::grouped,
    names,
    si::si,
    words::{command, sentences, simulated, titles},
};
use base::plural::count;
use study::{
    findings::{PointStudy, Study},
    point::Point,
    stats::Summary,
};

/// All figures that the study has data for.
pub fn for_study(study: &Study) -> Vec<Figure> {
    let mut figures = Vec::new();
    figures.extend(throughput(study));
    figures.extend(ratios::figures(study));
    figures.extend(preempted::wasted(study));
    figures.extend(preempted::kinds(study));
    figures.extend(latency::figures(study));
    for figure in &mut figures {
        figure.title = simulated::marked(study, &figure.title);
        figure.drop_flat_panels();
    }
    figures
}

/// Plural name of the study's operations.
pub(super) fn operations(study: &Study) -> &'static str {
    sentences::operations(study)
}

fn throughput(study: &Study) -> Option<Figure> {
    let legend = legend(study);
    let marks = |point: &PointStudy| Some(mark(study, point, &point.rate?));
    let panels = panels(study, &legend, marks);
    let values = panels.iter().flat_map(|(_, series)| series).flat_map(|line| &line.marks);
    let values = values.flat_map(|mark| mark.samples.iter().map(|(rate, _)| *rate));
    let label = format!("{} a second (log scale)", operations(study));
    let y = Scale::log(&label, AxisUnit::Count, values);
    Some(Figure {
        id: THROUGHPUT.to_owned(),
        title: titles::throughput(study),
        note: "Markers: medians. Bars: their exact 95 % intervals, from six repetitions on. Dots: \
               single repetitions; rings are outliers, which count as well."
            .to_owned(),
        command: command::rerun_commands(study, study.points.iter().map(|study| &study.point)),
        panels: finish(study, panels, &y, None)?,
        legend: without_unnamed(legend),
    })
}

fn mark(study: &Study, point: &PointStudy, rate: &Summary) -> PlottedValue {
    let interval = rate.median.interval.map(|interval| (interval.low, interval.high));
    let within = interval.map_or_else(
        || format!("{}: too few for an interval", count(rate.count, "repetition")),
        |(low, high)| {
            format!("95 % {} .. {}, {}", si(low), si(high), count(rate.count, "repetition"))
        },
    );
    PlottedValue {
        y: rate.median.value,
        note: si(rate.median.value),
        interval,
        hollow: false,
        samples: point
            .repetitions
            .iter()
            .map(|repetition| (repetition.rate, repetition.outlier))
            .collect(),
        tooltip: format!(
            "{}: {} {}/s ({within})",
            names::full_name(study, &point.point),
            si(rate.median.value),
            operations(study)
        ),
        ..PlottedValue::at_point(study, &point.point)
    }
}

impl PlottedValue {
    /// The position of a point along `x`, without a value.
    pub(super) fn at_point(study: &Study, point: &Point) -> Self {
        let x = study.layout.position(point).unwrap_or(0.0);
        Self { x, at: names::x_value(study, point), ..Self::default() }
    }
}

/// The series of the study, in order. Locks of different families are in different panels and may share
/// styles.
pub(super) fn legend(study: &Study) -> Vec<Legend> {
    let mut legend: Vec<Legend> = Vec::new();
    let mut of_family: HashMap<&str, usize> = HashMap::new();
    for point in &study.points {
        let name = names::series(study, &point.point);
        if legend.iter().all(|line| line.name != name) {
            let count = of_family.entry(names::plural(point.point.lock.family())).or_default();
            legend.push(Legend { style: *count % STYLES, name });
            *count += 1;
        }
    }
    legend
}

/// The style of a series; `None` if the legend lacks it.
pub(super) fn style_of(legend: &[Legend], name: &str) -> Option<usize> {
    legend.iter().find(|line| line.name == name).map(|line| line.style)
}

/// Panel titles with series. `marks` converts a point to its plotted value, if any.
pub(super) fn panels(
    study: &Study,
    legend: &[Legend],
    marks: impl Fn(&PointStudy) -> Option<PlottedValue>,
) -> Vec<(String, Vec<Series>)> {
    in_panels(study.points.iter().filter_map(|point| {
        let mark = marks(point)?;
        let facet = names::panel(study, &point.point, names::facet(study, &point.point));
        let name = names::series(study, &point.point);
        let style = style_of(legend, &name).unwrap_or(0);
        Some((facet, ((name, style), mark)))
    }))
}

/// The series of each panel. Each value comes with its panel's title and its series' name and style.
pub(super) fn in_panels(
    marks: impl Iterator<Item = (String, ((String, usize), PlottedValue))>,
) -> Vec<(String, Vec<Series>)> {
    let series = |((name, style), marks)| Series { name, style, marks };
    let panels = grouped(marks).into_iter();
    panels.map(|(title, marks)| (title, grouped(marks).into_iter().map(series).collect())).collect()
}

/// The legend without unnamed series: a single series needs no entry.
pub(super) fn without_unnamed(legend: Vec<Legend>) -> Vec<Legend> {
    legend.into_iter().filter(|line| !line.name.is_empty()).collect()
}

/// Panels with common axes, with categories as rows; `None` without panels.
pub(super) fn finish(
    study: &Study,
    panels: Vec<(String, Vec<Series>)>,
    values: &Scale,
    reference: Option<(f64, &'static str)>,
) -> Option<Vec<Panel>> {
    let places = || study.points.iter().filter_map(|point| study.layout.position(&point.point));
    let x = Scale::steps(&titles::x(study), titles::x_unit(study), places());
    // A single series is named by the legend.
    let has_one = {
        let mut names = panels.iter().flat_map(|(_, series)| series).map(|series| &series.name);
        names.next().is_none_or(|first| names.all(|name| name == first))
    };
    let plot = |mut series: Vec<Series>| match places().next() {
        Some(_) => {
            for line in &mut series {
                line.marks.sort_by(|a, b| a.x.total_cmp(&b.x));
            }
            Plot::Lines(Lines { x: x.clone(), y: values.clone(), series, reference })
        }
        None => {
            if has_one {
                series.iter_mut().for_each(|line| line.name.clear());
            }
            Plot::Rows(Rows {
                x: values.clone(),
                rows: by_category(series.iter().flat_map(series_rows).collect()),
                reference: reference.map(|(value, _)| value),
            })
        }
    };
    let panels: Vec<Panel> =
        panels.into_iter().map(|(title, series)| Panel { title, plot: plot(series) }).collect();
    (!panels.is_empty()).then_some(panels)
}

/// A row for each value of a series.
fn series_rows(series: &Series) -> impl Iterator<Item = PlotRow> {
    series.marks.iter().map(|mark| PlotRow {
        group: mark.at.clone(),
        label: series.name.clone(),
        note: mark.note.clone(),
        style: series.style,
        span: mark.interval,
        marks: vec![(series.style, mark.y)],
        hollow: mark.hollow,
        samples: mark.samples.clone(),
        tooltip: mark.tooltip.clone(),
        ..PlotRow::default()
    })
}

/// Groups the rows by category, in order of first appearance.
fn by_category(mut rows: Vec<PlotRow>) -> Vec<PlotRow> {
    let mut places: HashMap<String, usize> = HashMap::new();
    rows.sort_by_cached_key(|row| {
        let next = places.len();
        *places.entry(row.group.clone()).or_insert(next)
    });
    rows
}

/// The category of a point, empty on a numeric axis, and the point's name, which then includes the position.
pub(super) fn row_names(study: &Study, point: &Point) -> (String, String) {
    match study.layout.position(point) {
        Some(_) => (String::new(), names::name_in_facet(study, point)),
        None => (names::x_value(study, point), names::series(study, point)),
    }
}

/// Panels of rows on a common axis. Each row comes with its panel's title.
pub(super) fn rows(all: impl Iterator<Item = (String, PlotRow)>, x: &Scale) -> Vec<Panel> {
    let plot = |rows| Plot::Rows(Rows { x: x.clone(), rows: by_category(rows), reference: None });
    grouped(all).into_iter().map(|(title, rows)| Panel { title, plot: plot(rows) }).collect()
}
