//! Exports stores as one table for other programs, with one row per line of a cell, even without figures.
//!
//! A missing value, such as the figures of a failed cell, is an empty field in CSV. JSON has the lines of the
//! stores with all their lists and histograms, and the results of a study of them.

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

/// Errors of writing a table.
#[derive(Debug, Error)]
pub enum ExportError {
    /// Error of the CSV writer.
    #[error("cannot write CSV: {0}")]
    Csv(csv::Error),
    /// Flushing the output failed.
    #[error("cannot write")]
    Flush(#[from] io::Error),
}

// Without a source: the library's text already includes the text of the I/O error that is its source.
impl From<csv::Error> for ExportError {
    fn from(error: csv::Error) -> Self {
        Self::Csv(error)
    }
}

fn rows(record: &RunRecord) -> Vec<CellRow<'_>> {
    let Contents { run, cells, .. } = &record.contents;
    cells.iter().map(|cell| CellRow { store: &record.source, run, cell }).collect()
}

/// Returns the number of columns.
pub fn width() -> usize {
    names().count()
}

/// Writes CSV (RFC 4180) with a header line.
pub fn csv(stores: &[RunRecord], out: impl Write) -> Result<(), ExportError> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(names())?;
    for row in stores.iter().flat_map(rows) {
        table.write_record(fields(&row))?;
    }
    Ok(table.flush()?)
}
