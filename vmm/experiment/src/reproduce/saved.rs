//! What a reproduction's folder keeps beside the stores of its measurements.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::predict::{Effort, Predicted};
use crate::Usage;
use base::{files, units::ByteSize};
use os::results;

/// The file in the folder.
const FILE: &str = "reproduce.json";
/// The version of its format.
const FORMAT: u32 = 1;
/// The longest file that is read.
const LONGEST: ByteSize = ByteSize::mib(16);

/// Options and simulated rates: all that it takes to go on.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    format: u32,
    /// As they were when it was begun.
    pub options: Options,
    /// What was fitted so far.
    pub fits: Vec<FitText>,
    /// The cells that were simulated so far.
    pub cells: Vec<Simulated>,
}

/// How to reproduce.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The names of the rows; none: all.
    pub rows: Vec<String>,
    /// Measure.
    pub measured: bool,
    /// Simulate.
    pub simulated: bool,
    /// Runs of each measured point.
    pub runs: u32,
    /// Length of each, in seconds.
    pub seconds: f64,
    /// Short simulations.
    pub short: bool,
}

/// What was fitted to the column of a table without overcommitment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitText {
    /// The table.
    pub table: String,
    /// The parameters, in words.
    pub text: String,
}

/// What was simulated for a cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// Its table.
    pub table: String,
    /// The cell's name.
    pub cell: String,
    /// Operations a second, or why there are none.
    rate: Result<f64, String>,
    /// Retries for each success.
    retries: f64,
}

impl Simulated {
    pub fn new(table: String, cell: String, figures: Result<Predicted, String>) -> Self {
        let retries = figures.as_ref().map_or(0.0, |prediction| prediction.retries);
        Self { table, cell, rate: figures.map(|prediction| prediction.rate), retries }
    }
}

impl Options {
    /// How long it simulates.
    pub(super) const fn effort(&self) -> Effort {
        if self.short { Effort::Short } else { Effort::Full }
    }
}

impl Saved {
    /// Nothing is done yet.
    pub const fn new(options: Options) -> Self {
        Self { format: FORMAT, options, fits: Vec::new(), cells: Vec::new() }
    }

    /// Has the folder a reproduction?
    pub fn is_in(folder: &Path) -> Result<bool, Usage> {
        let file = folder.join(FILE);
        files::is_there(&file)
            .map_err(|error| Usage(format!("cannot look for {}: {error}", file.display())))
    }

    /// The reproduction in this folder.
    pub fn read(folder: &Path) -> Result<Self, Usage> {
        let file = folder.join(FILE);
        let bad = |what: String| Usage(format!("--resume: {}: {what}", file.display()));
        let text = files::read_text(&file, LONGEST).map_err(|error| bad(error.to_string()))?;
        let saved: Self = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        match saved.format {
            FORMAT => Ok(saved),
            other => Err(bad(format!("format {other} is not known"))),
        }
    }

    /// Replaces what the folder has.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let file = folder.join(FILE);
        let text = serde_json::to_vec_pretty(self).context("cannot write JSON")?;
        results::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// What was simulated for a cell.
    pub fn simulated(&self, table: &str, cell: &str) -> Option<Result<Predicted, String>> {
        let found = self.cells.iter().find(|entry| entry.table == table && entry.cell == cell)?;
        let figures = |rate: &f64| Predicted { rate: *rate, retries: found.retries };
        Some(found.rate.as_ref().map(figures).map_err(Clone::clone))
    }

    /// What was fitted to a table.
    pub fn fit(&self, table: &str) -> Option<&str> {
        self.fits.iter().find(|fit| fit.table == table).map(|fit| fit.text.as_str())
    }
}
