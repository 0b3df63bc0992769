//! Exports stores as one table for other programs: one row per cell that ended, with or without
//! figures.
//!
//! CSV and Parquet have the same columns. A missing value, such as the figures of a failed cell, is an
//! empty field in CSV and a null in Parquet. JSON has the lines of the stores with all their lists and
//! histograms, and what a study makes of them.

mod columns;
mod json;
mod row;
#[cfg(test)]
mod tests;

use std::{
    io::{self, Write},
    sync::Arc,
};

use parquet::{
    column::writer::ColumnWriterImpl,
    data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::{parser::parse_message_type, types::TypePtr},
};
use thiserror::Error;

use super::Contents;
use crate::findings::RunRecord;
use columns::{Column, Get, columns};
pub use json::json;
use row::Row;

/// Why a table cannot be written.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The CSV writer's error.
    #[error("cannot write CSV: {0}")]
    Csv(csv::Error),
    /// The Parquet writer's error.
    #[error("cannot write Parquet: {0}")]
    Parquet(ParquetError),
    /// The output cannot be flushed.
    #[error("cannot write")]
    Flush(#[from] io::Error),
}

// No sources: both libraries' texts already include that of the I/O error that is their source.
impl From<csv::Error> for ExportError {
    fn from(error: csv::Error) -> Self {
        Self::Csv(error)
    }
}

impl From<ParquetError> for ExportError {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
}

fn rows(record: &RunRecord) -> Vec<Row<'_>> {
    let Contents { run, cells, .. } = &record.contents;
    cells.iter().map(|cell| Row::new(&record.source, run, cell)).collect()
}

/// Number of columns.
pub fn width() -> usize {
    columns().count()
}

/// Writes CSV (RFC 4180) with a header line.
pub fn csv(stores: &[RunRecord], to: impl Write) -> Result<(), ExportError> {
    let mut table = csv::Writer::from_writer(to);
    table.write_record(columns().map(|column| column.name))?;
    for row in stores.iter().flat_map(rows) {
        table.write_record(columns().map(|column| field(column, &row)))?;
    }
    Ok(table.flush()?)
}

/// A field's text. Numbers have the fewest digits that parse back to the same value.
fn field(column: &Column, row: &Row<'_>) -> String {
    let text = match column.get {
        Get::Text(get) => get(row),
        Get::Count(get) => get(row).map(|value| value.to_string()),
        Get::Number(get) => get(row).map(|value| value.to_string()),
    };
    text.unwrap_or_default()
}

/// Writes Parquet: one row group per store, uncompressed.
pub fn parquet(stores: &[RunRecord], to: impl Write + Send) -> Result<(), ExportError> {
    let created_by = concat!("pvticket ", env!("CARGO_PKG_VERSION"));
    let properties = WriterProperties::builder().set_created_by(created_by.into()).build();
    let mut file = SerializedFileWriter::new(to, schema()?, Arc::new(properties))?;
    for store in stores.iter().filter(|store| !store.contents.cells.is_empty()) {
        let rows = rows(store);
        let mut group = file.next_row_group()?;
        for column in columns() {
            let Some(mut writer) = group.next_column()? else { break };
            write_column(column, &rows, &mut writer)?;
            writer.close()?;
        }
        group.close()?;
    }
    Ok(file.into_inner()?.flush()?)
}

fn schema() -> Result<TypePtr, ParquetError> {
    let field = |column: &Column| match column.get {
        Get::Text(_) => format!("OPTIONAL BYTE_ARRAY {} (STRING);", column.name),
        Get::Count(_) => format!("OPTIONAL INT64 {} (INTEGER(64,false));", column.name),
        Get::Number(_) => format!("OPTIONAL DOUBLE {};", column.name),
    };
    let fields: String = columns().map(field).collect();
    parse_message_type(&format!("message cells {{ {fields} }}")).map(Arc::new)
}

fn write_column(
    column: &Column,
    rows: &[Row<'_>],
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    match column.get {
        Get::Text(get) => {
            let value = |row| get(row).map(|text| ByteArray::from(text.into_bytes()));
            write_values(rows.iter().map(value), writer.typed::<ByteArrayType>())
        }
        // Counts above 2^63 keep their bits: the column's type is unsigned.
        Get::Count(get) => {
            let value = |row| get(row).map(u64::cast_signed);
            write_values(rows.iter().map(value), writer.typed::<Int64Type>())
        }
        Get::Number(get) => write_values(rows.iter().map(get), writer.typed::<DoubleType>()),
    }
}

/// Writes the values that are present, and for each row whether it has one.
fn write_values<T: DataType>(
    all: impl Iterator<Item = Option<T::T>>,
    writer: &mut ColumnWriterImpl<'_, T>,
) -> Result<(), ParquetError> {
    let all: Vec<_> = all.collect();
    let there: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.into_iter().flatten().collect();
    writer.write_batch(&values, Some(&there), None).map(drop)
}
