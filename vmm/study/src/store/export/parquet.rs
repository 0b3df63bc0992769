//! The table as Parquet.

use std::{io::Write, sync::Arc};

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

use super::{
    ExportError,
    columns::{Column, Get, columns},
    row::CellRow,
    rows,
};
use crate::findings::RunRecord;

// No source: the library's text already includes that of the I/O error that is its source.
impl From<ParquetError> for ExportError {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
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
    rows: &[CellRow<'_>],
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
    let present: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.into_iter().flatten().collect();
    writer.write_batch(&values, Some(&present), None).map(drop)
}
