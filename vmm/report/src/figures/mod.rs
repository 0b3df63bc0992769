//! The figures of a report: from a study to plots, and from plots to SVG or characters.
//!
//! A template writes the SVG, not a plotting crate: colours have to be classes so that the style sheet can
//! switch to dark, every marker has a tooltip, and each figure is drawn for wide and narrow pages with the same
//! font size.

mod build;
pub mod characters;
pub mod diff;
mod latency;
mod preempted;
mod ratios;
pub mod scale;
pub mod svg;
#[cfg(test)]
mod tests;

use base::plural::{agree, count};
pub use build::for_study;
use scale::Scale;

/// Number of marker styles, each with a different colour.
pub const STYLES: usize = 12;

/// Figures with at least this many panels are shown as small multiples.
pub const MANY: usize = 4;

/// Maximum number of values of a figure with several panels.
const MAX_VALUES: usize = 120;

/// Id of the throughput figure.
pub const THROUGHPUT: &str = "throughput";
/// Prefix of the ids of ratio figures.
pub const RATIO: &str = "ratio-";

/// A figure: panels next to each other, with one legend.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Anchor in the page.
    pub id: String,
    /// A description in one sentence.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// Meaning of the markers, in the order of the series.
    pub legend: Vec<Legend>,
    /// At least one.
    pub panels: Vec<Panel>,
    /// The command that measures its data; empty if unknown.
    pub command: String,
}

/// An entry of a legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Legend {
    /// Index of the marker's style.
    pub style: usize,
    /// The name of the series.
    pub name: String,
}

/// One plot of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The panel's title; empty if the figure has only one panel.
    pub title: String,
    /// The plot.
    pub plot: Plot,
}

/// Kinds of plots.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Series over common axes.
    Lines(Lines),
    /// One row per item.
    Rows(Rows),
}

/// Series over common axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// The horizontal axis.
    pub x: Scale,
    /// The vertical axis.
    pub y: Scale,
    /// At least one.
    pub series: Vec<Series>,
    /// A height marked with a line, and its label.
    pub reference: Option<(f64, &'static str)>,
}

/// One series of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The legend's text.
    pub name: String,
    /// Index of the marker's style.
    pub style: usize,
    /// In the order of the horizontal axis.
    pub marks: Vec<PlottedValue>,
}

/// A value of a series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlottedValue {
    /// Position on the horizontal axis; 0 among categories.
    pub x: f64,
    /// The category, or `x` as text.
    pub at: String,
    /// Position on the vertical axis.
    pub y: f64,
    /// `y` as text, shown next to a category.
    pub note: String,
    /// Interval of `y`.
    pub interval: Option<(f64, f64)>,
    /// Whether it is drawn hollow: the difference is not significant.
    pub hollow: bool,
    /// Single samples; true if the sample is an outlier.
    pub samples: Vec<(f64, bool)>,
    /// Tooltip text.
    pub tooltip: String,
}

/// One row per item, over a common axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// The horizontal axis.
    pub x: Scale,
    /// From top to bottom; at least one.
    pub rows: Vec<PlotRow>,
    /// A value marked with a line.
    pub reference: Option<f64>,
}

/// One row of a plot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlotRow {
    /// The category of the row, shown once for adjacent rows; may be empty.
    pub group: String,
    /// The row's name within its category; may be empty.
    pub label: String,
    /// Figures, written at the end of the row.
    pub note: String,
    /// Index of the colour of the interval and of the distribution.
    pub style: usize,
    /// The end of a bar that begins at the axis.
    pub bar: Option<f64>,
    /// An interval, drawn as a line.
    pub span: Option<(f64, f64)>,
    /// Markers: style and value. The last are drawn on top.
    pub marks: Vec<(usize, f64)>,
    /// Whether the markers are hollow.
    pub hollow: bool,
    /// Single samples; true if the sample is an outlier.
    pub samples: Vec<(f64, bool)>,
    /// A distribution: heights from 0 to 1 in equal steps over the whole axis.
    pub ridge: Vec<f64>,
    /// Tooltip text.
    pub tooltip: String,
}

impl Plot {
    fn values(&self) -> usize {
        match self {
            Self::Lines(Lines { series, .. }) => series.iter().map(|line| line.marks.len()).sum(),
            Self::Rows(Rows { rows, .. }) => rows.len(),
        }
    }

    /// The share of the value axis that its markers cover.
    fn spread(&self) -> f64 {
        let places: Vec<f64> = match self {
            Self::Lines(Lines { y, series, .. }) => {
                series.iter().flat_map(|line| &line.marks).map(|mark| y.position(mark.y)).collect()
            }
            Self::Rows(Rows { x, rows, .. }) => {
                let marks = rows.iter().flat_map(|row| &row.marks);
                marks.map(|(_, value)| x.position(*value)).collect()
            }
        };
        let high = places.iter().copied().fold(0.0, f64::max);
        high - places.iter().copied().fold(high, f64::min)
    }
}

impl Rows {
    /// Whether this row is the first of its category.
    pub fn is_first(&self, row: usize) -> bool {
        let group = |row: usize| self.rows.get(row).map(|row| &row.group);
        row.checked_sub(1).is_none_or(|before| group(before) != group(row))
    }
}

impl Figure {
    /// Drops panels whose series each have a single value, at an `x` for which `is_shown` is true. Returns
    /// `None` if no panel remains.
    pub fn without_single_marks(mut self, is_shown: impl Fn(f64) -> bool) -> Option<Self> {
        self.panels.retain(|panel| match &panel.plot {
            Plot::Lines(lines) => lines.series.iter().any(|series| match series.marks.as_slice() {
                [mark] => !is_shown(mark.x),
                _ => true,
            }),
            Plot::Rows(_) => true,
        });
        (!self.panels.is_empty()).then_some(self)
    }

    /// Drops the panels with the smallest spread if there are too many values. The tables have all values.
    fn drop_flat_panels(&mut self) {
        let spread = |ix: &usize| self.panels[*ix].plot.spread();
        let mut order: Vec<usize> = (0..self.panels.len()).collect();
        order.sort_by(|a, b| spread(b).total_cmp(&spread(a)));
        let values = order.iter().scan(0, |sum, ix| {
            *sum += self.panels[*ix].plot.values();
            Some(*sum)
        });
        let shown = values.take_while(|values| *values <= MAX_VALUES).count().max(1);
        let left_out = order.split_off(shown.min(order.len()));
        if left_out.is_empty() {
            return;
        }
        let mut places = 0..;
        self.panels.retain(|_| places.next().is_some_and(|place| !left_out.contains(&place)));
        self.note += &format!(
            " {} {} left out, whose values differ less: they are in the tables.",
            count(left_out.len(), "panel"),
            agree(left_out.len(), "is", "are")
        );
    }

    /// Whether it has line plots.
    pub fn has_lines(&self) -> bool {
        self.panels.iter().any(|panel| matches!(panel.plot, Plot::Lines(_)))
    }
    /// Whether any of its series connects markers with a line.
    pub fn connects_marks(&self) -> bool {
        self.panels.iter().any(|panel| match &panel.plot {
            Plot::Lines(lines) => lines.series.iter().any(|series| series.marks.len() > 1),
            Plot::Rows(_) => false,
        })
    }
}
