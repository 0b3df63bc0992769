//! The figures of a report: from a study to plots, and from a plot to SVG or to characters.
//!
//! The SVG is ours, by a template, and not of a plotting crate: colours have to be classes, so that
//! the page's style can turn them dark, every mark has a title of its own, and each figure is drawn
//! for a wide and for a narrow page, with letters of the same size.

mod build;
pub mod characters;
pub mod diff;
mod latency;
pub mod names;
mod preempted;
mod ratios;
pub mod scale;
pub mod svg;

pub use build::all;
use scale::Scale;

/// Kinds of markers, and colours with them.
pub const STYLES: usize = 12;

/// A figure: panels beside each other, with one legend.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its name in the page.
    pub id: String,
    /// What is seen, in a sentence.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// What the markers stand for.
    pub legend: Vec<Legend>,
    /// At least one.
    pub panels: Vec<Panel>,
    /// The command that measures what it shows; empty: none is known.
    pub command: String,
}

/// A line of a legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Legend {
    /// Which marker.
    pub style: usize,
    /// What it stands for.
    pub name: String,
}

/// One plot of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What it is of; empty where there is only one.
    pub title: String,
    /// Its plot.
    pub plot: Plot,
}

/// Kinds of plots.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Series over a common axis.
    Lines(Lines),
    /// A row for each of several things.
    Rows(Rows),
}

/// Series over a common axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// From left to right.
    pub x: Scale,
    /// From below.
    pub y: Scale,
    /// At least one.
    pub series: Vec<Series>,
    /// A height that is marked, and what it means.
    pub reference: Option<(f64, &'static str)>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Which marker.
    pub style: usize,
    /// From left to right.
    pub marks: Vec<Mark>,
}

/// A value of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
    /// Its interval.
    pub interval: Option<(f64, f64)>,
    /// Drawn hollow: no difference.
    pub hollow: bool,
    /// What it is made of; and is it far from the others?
    pub samples: Vec<(f64, bool)>,
    /// In words.
    pub says: String,
}

/// A row for each of several things.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// From left to right.
    pub x: Scale,
    /// From above; at least one.
    pub rows: Vec<Row>,
    /// A value that is marked.
    pub reference: Option<f64>,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// Of what.
    pub label: String,
    /// Its figures, at its end.
    pub note: String,
    /// Which colour.
    pub style: usize,
    /// An interval.
    pub span: Option<(f64, f64)>,
    /// Markers: a kind and a value.
    pub marks: Vec<(usize, f64)>,
    /// Markers are hollow.
    pub hollow: bool,
    /// Heights, from 0 to 1, over the whole axis in equal steps.
    pub ridge: Vec<f64>,
    /// Lengths one after the other, each with its colour.
    pub segments: Vec<(usize, f64)>,
    /// In words.
    pub says: String,
}

impl Figure {
    /// Is it made of lines?
    pub fn has_lines(&self) -> bool {
        self.panels.iter().any(|panel| matches!(panel.plot, Plot::Lines(_)))
    }
}
