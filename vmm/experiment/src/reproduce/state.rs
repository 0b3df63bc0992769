//! State of a reproduction's folder in addition to its measurements' stores.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::predict::{Effort, Predicted};
use crate::Usage;
use base::{files, units::ByteSize};
use os::results;

const FILE: &str = "reproduce.json";
const FORMAT: u32 = 1;
/// Maximum size of the file.
const MAX_SIZE: ByteSize = ByteSize::mib(16);

/// Options, fits and simulated figures, to resume a reproduction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    format: u32,
    /// The options at the start.
    pub options: Options,
    /// Fits so far.
    pub fits: Vec<FitText>,
    /// Cells simulated so far.
    pub cells: Vec<Simulated>,
}

/// Options of a reproduction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Names of the rows; empty for all.
    pub rows: Vec<String>,
    /// Whether to measure.
    pub measured: bool,
    /// Whether to simulate.
    pub simulated: bool,
    /// Number of runs of each measured point.
    pub runs: u32,
    /// Length of each run, in seconds.
    pub seconds: f64,
    /// Whether the simulations are short.
    pub short: bool,
}

/// Fit to the column of a table without overcommitment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitText {
    /// The table.
    pub table: String,
    /// Description of the fit.
    pub text: String,
}

/// Result of a simulated cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// The cell's table.
    pub table: String,
    /// The cell's name.
    pub cell: String,
    /// Operations per second of a guest, or the reason why they are missing.
    rate: Result<f64, String>,
    /// Retries per change of a lockref's count; 0 without a rate.
    retries: f64,
}

impl Simulated {
    pub fn new(table: String, cell: String, figures: Result<Predicted, String>) -> Self {
        let retries = figures.as_ref().map_or(0.0, |prediction| prediction.retries);
        Self { table, cell, rate: figures.map(|prediction| prediction.rate), retries }
    }
}

impl Options {
    /// Amount of simulation.
    pub(super) const fn effort(&self) -> Effort {
        if self.short { Effort::Short } else { Effort::Full }
    }
}

impl Saved {
    /// Creates a state without results.
    pub const fn new(options: Options) -> Self {
        Self { format: FORMAT, options, fits: Vec::new(), cells: Vec::new() }
    }

    /// Whether the folder has a reproduction.
    pub fn is_in(folder: &Path) -> Result<bool, Usage> {
        let file = folder.join(FILE);
        files::is_file(&file)
            .map_err(|error| Usage(format!("cannot look for {}: {error}", file.display())))
    }

    /// Reads the reproduction in this folder.
    pub fn read(folder: &Path) -> Result<Self, Usage> {
        let file = folder.join(FILE);
        let bad = |reason: String| Usage(format!("--resume: {}: {reason}", file.display()));
        let text = files::read_text(&file, MAX_SIZE).map_err(|error| bad(error.to_string()))?;
        let saved: Self = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        match saved.format {
            FORMAT => Ok(saved),
            format => Err(bad(format!("unknown format {format}"))),
        }
    }

    /// Replaces the reproduction in the folder.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let file = folder.join(FILE);
        let text = serde_json::to_vec_pretty(self).context("cannot write JSON")?;
        results::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Returns the result of a simulated cell.
    pub fn simulated(&self, table: &str, cell: &str) -> Option<Result<Predicted, String>> {
        let entry = self.cells.iter().find(|entry| entry.table == table && entry.cell == cell)?;
        let figures = |rate: &f64| Predicted { rate: *rate, retries: entry.retries };
        Some(entry.rate.as_ref().map(figures).map_err(Clone::clone))
    }

    /// Returns the fit of a table.
    pub fn fit(&self, table: &str) -> Option<&str> {
        self.fits.iter().find(|fit| fit.table == table).map(|fit| fit.text.as_str())
    }
}
