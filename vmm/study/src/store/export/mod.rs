//! Exports stores as one table for other programs: one row per cell that ended, with or without
//! figures.
//!
//! A missing value, such as the figures of a failed cell, is an empty field in CSV. JSON has the lines of the stores with all their lists and
//! histograms, and what a study makes of them.

pub(crate) mod columns;
mod json;
mod row;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use thiserror::Error;

use super::Contents;
use crate::findings::RunRecord;
use columns::{fields, names};
pub use json::json;
use row::CellRow;

/// Why a table cannot be written.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The CSV writer's error.
    #[error("cannot write CSV: {0}")]
    Csv(csv::Error),
    /// The output cannot be flushed.
    #[error("cannot write")]
    Flush(#[from] io::Error),
}

// No source: the library's text already includes that of the I/O error that is its source.
impl From<csv::Error> for ExportError {
    fn from(error: csv::Error) -> Self {
        Self::Csv(error)
    }
}

fn rows(record: &RunRecord) -> Vec<CellRow<'_>> {
    let Contents { run, cells, .. } = &record.contents;
    cells.iter().map(|cell| CellRow { store: &record.source, run, cell }).collect()
}

/// Number of columns.
pub fn width() -> usize {
    names().count()
}

/// Writes CSV (RFC 4180) with a header line.
pub fn csv(stores: &[RunRecord], to: impl Write) -> Result<(), ExportError> {
    let mut table = csv::Writer::from_writer(to);
    table.write_record(names())?;
    for row in stores.iter().flat_map(rows) {
        table.write_record(fields(&row))?;
    }
    Ok(table.flush()?)
}
