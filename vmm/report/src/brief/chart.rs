//! The rates behind a brief, as bars on a logarithmic scale.

use super::{
    clipped, points,
    rows::{others, schedule},
    subject::{LockWords, Subject},
};
use crate::{
    figures::{
        Figure, Legend, Panel, Plot, PlotRow, Rows, STYLES,
        characters::tick_names,
        scale::{AxisUnit, Scale},
    },
    si::si,
    words::sentences::first_large,
};
use base::plural::{agree, count};
use study::{findings::Study, point::Point, stats::Summary};

/// Most lines, the blank one above it included.
pub const MOST_LINES: usize = 12;

/// Most bars: without the blank line and the scale.
const MOST_BARS: usize = MOST_LINES - 2;

/// Columns of a rate.
const RATE: usize = 6;

/// Least columns of the bars, and of what is left of them.
const LEAST_BAR: usize = 8;
const LEAST_NAMES: usize = 20;

/// Parts of a character, by eighths from the left.
const EIGHTHS: [char; 9] = [
    ' ', '\u{258f}', '\u{258e}', '\u{258d}', '\u{258c}', '\u{258b}', '\u{258a}', '\u{2589}',
    '\u{2588}',
];

/// A rate with the names of its guest, its schedule, and its lock with what else tells points apart.
#[derive(Debug)]
pub struct Bar {
    names: [String; 3],
    rate: Summary,
}

/// The chart, below a blank line; nothing without rates.
pub fn render(bars: &[Bar], unit: &str, width: usize) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let shown = if bars.len() > MOST_BARS { MOST_BARS - 1 } else { bars.len() };
    let scale = scale("", &bars[..shown]);
    let names = names(&bars[..shown]);
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let room = width.saturating_sub(RATE + LEAST_BAR + 2);
    let left = widest.max(LEAST_NAMES).min(room);
    let columns = width.saturating_sub(left + RATE + 2).max(LEAST_BAR);
    let mut text = String::new();
    for (bar, name) in bars.iter().zip(&names) {
        let name: String = name.chars().take(left).collect();
        let drawn = drawn(scale.place(bar.median()), columns);
        text += &format!("{name:<left$} {drawn} {:>RATE$}\n", si(bar.median()));
    }
    if bars.len() > shown {
        text += &format!(
            "{} {} in the whole report\n",
            count(bars.len() - shown, "more rate"),
            agree(bars.len() - shown, "is", "are")
        );
    }
    let unit: String = format!("{unit}/s, log").chars().take(left).collect();
    text += &format!("{unit:<left$} {}\n", tick_names(&scale, columns));
    format!("\n{}", clipped(&text, width))
}

/// The chart for a page: a row for each bar, coloured by its lock.
pub fn figure(bars: &[Bar], unit: &str) -> Option<Figure> {
    let mut locks: Vec<&String> = Vec::new();
    for lock in bars.iter().map(|bar| &bar.names[2]) {
        if !locks.contains(&lock) {
            locks.push(lock);
        }
    }
    let style = |lock: &String| locks.iter().position(|name| *name == lock).unwrap_or(0) % STYLES;
    let row = |bar: &Bar| {
        let [guest, schedule, lock] = &bar.names;
        let rate = si(bar.median());
        let interval = bar.rate.median.interval;
        let within = interval.map_or_else(String::new, |within| {
            format!(", 95 % {} .. {}", si(within.low), si(within.high))
        });
        let label = format!("{schedule}, {lock}");
        PlotRow {
            says: format!("{guest}, {label}: {rate} {unit}/s{within}"),
            group: guest.clone(),
            label,
            note: rate,
            style: style(lock),
            bar: Some(bar.median()),
            span: interval.map(|within| (within.low, within.high)),
            ..PlotRow::default()
        }
    };
    let rows: Vec<PlotRow> = bars.iter().map(row).collect();
    let x = scale(&format!("{unit} a second (log scale)"), bars);
    let legend = locks.iter().map(|lock| Legend { style: style(lock), name: (*lock).clone() });
    (!rows.is_empty()).then(|| Figure {
        id: "answer".to_owned(),
        title: format!("{} a second by guest, schedule and lock", first_large(unit)),
        note: "Bars: medians on a logarithmic scale. Lines: their exact 95 % intervals, from six \
               repetitions on."
            .to_owned(),
        legend: legend.collect(),
        panels: vec![Panel {
            title: String::new(),
            plot: Plot::Rows(Rows { x, rows, reference: None }),
        }],
        command: String::new(),
    })
}

impl Bar {
    const fn median(&self) -> f64 {
        self.rate.median.value
    }
}

/// A bar for each point; of one that is in two studies, the first.
pub fn bars(studies: &[Study], subjects: &[Subject], words: &LockWords) -> Vec<Bar> {
    let mut seen: Vec<&Point> = Vec::new();
    let mut bars = Vec::new();
    for subject in subjects {
        let guest = subject.name_among(subjects);
        for (study, measured) in points(studies, subject) {
            let Some(rate) =
                measured.rate.filter(|_| !seen.iter().any(|point| point.is_like(&measured.point)))
            else {
                continue;
            };
            seen.push(&measured.point);
            let lock = [words.lock(&measured.point)].into_iter();
            let lock = lock.chain(others(study, &measured.point)).collect::<Vec<_>>().join(", ");
            let names = [guest.clone(), schedule(&measured.point), lock];
            bars.push(Bar { names, rate });
        }
    }
    bars
}

/// From the power of ten below the least rate, so that this one has a bar, too.
fn scale(label: &str, bars: &[Bar]) -> Scale {
    let rates = || bars.iter().map(Bar::median).filter(|rate| *rate > f64::MIN_POSITIVE);
    let least = rates().fold(f64::INFINITY, f64::min);
    let below = 10f64.powf((least / 2.0).log10().floor());
    Scale::log(label, AxisUnit::Count, rates().chain([below]))
}

/// The names in columns, a guest's only with its first bar.
fn names(bars: &[Bar]) -> Vec<String> {
    let widest =
        |ix: usize| bars.iter().map(|bar| bar.names[ix].chars().count()).max().unwrap_or(0);
    let [guests, schedules] = [0, 1].map(widest);
    let mut lines = Vec::new();
    let mut before = "";
    for Bar { names: [guest, schedule, lock], .. } in bars {
        let shown = if guest == before { "" } else { guest };
        before = guest;
        lines.push(format!("{shown:<guests$}  {schedule:<schedules$}  {lock}"));
    }
    lines
}

/// A bar up to this place, 0 to 1.
fn drawn(place: f64, columns: usize) -> String {
    let eighths = (place * (columns * 8) as f64).round() as usize;
    let part = |column: usize| EIGHTHS[eighths.saturating_sub(column * 8).min(8)];
    (0..columns).map(part).collect()
}
