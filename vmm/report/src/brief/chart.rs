//! The rates behind a brief, as bars on a logarithmic scale.

use super::{
    clipped, points,
    rows::{extras, schedule},
    subject::{LockNames, Subject},
};
use crate::{
    figures::{
        Figure, Legend, Panel, Plot, PlotRow, Rows, STYLES, characters,
        scale::{AxisUnit, Scale},
    },
    lists::unique,
    si::si,
    words::sentences::capitalize,
};
use base::plural::{agree, count};
use study::{findings::Study, point::Point, stats::Summary};

/// Maximum number of lines, including the blank line above.
pub const MAX_LINES: usize = 12;

/// Maximum number of bars: other lines are blank or the scale.
const MAX_BARS: usize = MAX_LINES - 2;

/// A rate with the names of its guest, its schedule, and its lock with other distinguishing values.
#[derive(Debug)]
pub struct Bar {
    guest: String,
    schedule: String,
    lock: String,
    rate: Summary,
}

/// The chart below a blank line; empty without rates.
pub fn render(bars: &[Bar], unit: &str, width: usize) -> String {
    let shown = if bars.len() > MAX_BARS { MAX_BARS - 1 } else { bars.len() };
    let Some(plot) = plot(&bars[..shown], unit) else { return String::new() };
    let mut text = characters::compact(&plot, &format!("{unit}/s, log"), width);
    if bars.len() > shown {
        text += &format!(
            "{} {} in the complete report\n",
            count(bars.len() - shown, "more rate"),
            agree(bars.len() - shown, "is", "are")
        );
    }
    format!("\n{}", clipped(&text, width))
}

/// One row per bar, coloured by its lock; `None` without bars.
fn plot(bars: &[Bar], unit: &str) -> Option<Rows> {
    let locks = locks(bars);
    let row = |bar: &Bar| {
        let Bar { guest, schedule, lock, rate } = bar;
        let shown = si(bar.median());
        let interval = rate.median.interval;
        let within = interval.map_or_else(String::new, |within| {
            format!(", 95 % {} .. {}", si(within.low), si(within.high))
        });
        let label = format!("{schedule}, {lock}");
        PlotRow {
            tooltip: format!("{guest}, {label}: {shown} {unit}/s{within}"),
            group: guest.clone(),
            label,
            note: shown,
            style: style(&locks, lock),
            bar: Some(bar.median()),
            span: interval.map(|within| (within.low, within.high)),
            ..PlotRow::default()
        }
    };
    let rows: Vec<PlotRow> = bars.iter().map(row).collect();
    let x = scale(&format!("{unit} a second (log scale)"), bars);
    (!rows.is_empty()).then_some(Rows { x, rows, reference: None })
}

/// The locks without duplicates.
fn locks(bars: &[Bar]) -> Vec<&str> {
    unique(bars.iter().map(|bar| bar.lock.as_str()))
}

fn style(locks: &[&str], lock: &str) -> usize {
    locks.iter().position(|name| *name == lock).unwrap_or(0) % STYLES
}

/// The chart for a page; `None` without bars.
pub fn figure(bars: &[Bar], unit: &str) -> Option<Figure> {
    let locks = locks(bars);
    let legend =
        locks.iter().map(|lock| Legend { style: style(&locks, lock), name: (*lock).to_owned() });
    Some(Figure {
        id: "answer".to_owned(),
        title: format!("{} a second by guest, schedule and lock", capitalize(unit)),
        note: "Bars: medians on a logarithmic scale. Lines: their exact 95 % intervals, from six \
               repetitions on."
            .to_owned(),
        legend: legend.collect(),
        panels: vec![Panel { title: String::new(), plot: Plot::Rows(plot(bars, unit)?) }],
        command: String::new(),
    })
}

impl Bar {
    const fn median(&self) -> f64 {
        self.rate.median.value
    }
}

/// One bar per point with a rate. A point in several studies has the rate of the first.
pub fn bars(studies: &[Study], subjects: &[Subject], words: &LockNames) -> Vec<Bar> {
    let mut charted: Vec<&Point> = Vec::new();
    let mut bars = Vec::new();
    for subject in subjects {
        let guest = subject.qualified_name(subjects);
        for (study, measured) in points(studies, subject) {
            let Some(rate) = measured
                .rate
                .filter(|_| !charted.iter().any(|point| point.is_same(&measured.point)))
            else {
                continue;
            };
            charted.push(&measured.point);
            let lock = [words.lock(&measured.point)].into_iter();
            let lock = lock.chain(extras(study, &measured.point)).collect::<Vec<_>>().join(", ");
            let schedule = schedule(&measured.point);
            bars.push(Bar { guest: guest.clone(), schedule, lock, rate });
        }
    }
    bars
}

/// An axis with a power of ten of at most half the lowest rate, so that this rate has a bar.
fn scale(label: &str, bars: &[Bar]) -> Scale {
    let rates = || bars.iter().map(Bar::median).filter(|rate| *rate > f64::MIN_POSITIVE);
    let least = rates().fold(f64::INFINITY, f64::min);
    let below = 10f64.powf((least / 2.0).log10().floor());
    Scale::log(label, AxisUnit::Count, rates().chain([below]))
}
