//! Stores as one table for other programs: a row for each cell that ended, however it did.
//!
//! Both forms are of the same columns. What a cell does not have, such as figures of one that
//! failed, is an empty place in CSV and a null in Parquet.

mod columns;
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
use columns::{Column, Get, columns};
use row::Row;

/// A table that could not be written.
#[derive(Debug, Error)]
pub enum ExportError {
    /// As CSV.
    #[error("cannot write CSV: {0}")]
    Csv(#[from] csv::Error),
    /// As Parquet.
    #[error("cannot write Parquet: {0}")]
    Parquet(#[from] ParquetError),
    /// The end of either.
    #[error("cannot write: {0}")]
    Flush(#[from] io::Error),
}

/// A store, and where it is.
#[derive(Debug)]
pub struct Named {
    /// Its directory, as it was named.
    pub name: String,
    /// What is in it.
    pub contents: Contents,
}

impl Named {
    fn rows(&self) -> Vec<Row<'_>> {
        let Contents { run, cells, .. } = &self.contents;
        cells.iter().map(|cell| Row::new(&self.name, run, cell)).collect()
    }
}

/// How many columns a table has.
pub fn width() -> usize {
    columns().count()
}

/// Writes CSV (RFC 4180), its first line the columns' names.
pub fn csv(stores: &[Named], to: impl Write) -> Result<(), ExportError> {
    let mut table = csv::Writer::from_writer(to);
    table.write_record(columns().map(|column| column.name))?;
    for row in stores.iter().flat_map(Named::rows) {
        table.write_record(columns().map(|column| field(column, &row)))?;
    }
    Ok(table.flush()?)
}

/// Numbers as short as they can be to come back the same.
fn field(column: &Column, row: &Row<'_>) -> String {
    let text = match column.get {
        Get::Text(get) => get(row),
        Get::Count(get) => get(row).map(|value| value.to_string()),
        Get::Number(get) => get(row).map(|value| value.to_string()),
    };
    text.unwrap_or_default()
}

/// Writes Parquet: a row group for each store, nothing compressed.
pub fn parquet(stores: &[Named], to: impl Write + Send) -> Result<(), ExportError> {
    let created_by = concat!("pvticket ", env!("CARGO_PKG_VERSION"));
    let properties = WriterProperties::builder().set_created_by(created_by.into()).build();
    let mut file = SerializedFileWriter::new(to, schema()?, Arc::new(properties))?;
    for store in stores.iter().filter(|store| !store.contents.cells.is_empty()) {
        let rows = store.rows();
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
        // Counts above 2^63 keep their bits: the column is of unsigned integers.
        Get::Count(get) => {
            let value = |row| get(row).map(u64::cast_signed);
            write_values(rows.iter().map(value), writer.typed::<Int64Type>())
        }
        Get::Number(get) => write_values(rows.iter().map(get), writer.typed::<DoubleType>()),
    }
}

/// The values that there are, and for each row whether it has one.
fn write_values<T: DataType>(
    all: impl Iterator<Item = Option<T::T>>,
    writer: &mut ColumnWriterImpl<'_, T>,
) -> Result<(), ParquetError> {
    let all: Vec<_> = all.collect();
    let there: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.into_iter().flatten().collect();
    writer.write_batch(&values, Some(&there), None).map(drop)
}
