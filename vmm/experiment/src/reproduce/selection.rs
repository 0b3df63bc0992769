//! The selected rows of a reproduction.

use std::fmt::Write as _;

use crate::Usage;
use study::published::{Claim, Row, Table};

/// Tables, each with its selected rows.
pub struct Selection<'a> {
    /// All tables; selected tables may use the fit of others.
    pub published: &'a [Table],
    /// Tables with selected rows.
    pub tables: Vec<(&'a Table, Vec<&'a Row>)>,
}

impl<'a> Selection<'a> {
    /// Selects the named rows (by row, table or letter), or all.
    pub fn new(tables: &'a [Table], names: &[String]) -> Result<Self, Usage> {
        let is_named = |name: &String, table: &Table, row: &Row| {
            *name == table.name
                || table.card.as_ref() == Some(name)
                || *name == full_name(table, row)
        };
        for name in names {
            let is_known =
                tables.iter().any(|table| table.rows.iter().any(|row| is_named(name, table, row)));
            if !is_known {
                return Err(Usage(format!(
                    "--row {}: no such row, table or letter; `pvticket reproduce --list` \
                     prints them",
                    base::sanitize::line(name)
                )));
            }
        }
        let select = |table: &'a Table| {
            let is_selected = |row: &&Row| {
                names.is_empty() || names.iter().any(|name| is_named(name, table, row))
            };
            (table, table.rows.iter().filter(is_selected).collect::<Vec<_>>())
        };
        let selected = tables.iter().map(select).filter(|(_, rows)| !rows.is_empty()).collect();
        Ok(Self { published: tables, tables: selected })
    }
}

/// A row's name on the command line.
fn full_name(table: &Table, row: &Row) -> String {
    format!("{}: {}", table.name, row.id)
}

/// Lists all rows: letter, published figure, whether measured, and name.
pub fn list(tables: &[Table]) -> String {
    let mut text = String::new();
    for table in tables {
        for row in &table.rows {
            let card = table.card.as_deref().unwrap_or("-");
            let figure = match table.claim(row) {
                Claim::Ratio(ratio) => report::si::ratio(ratio),
                Claim::Retries(count) => report::si::si(count),
            };
            let measured = if table.surrogate(row).is_ok() { "measured" } else { "-" };
            let _ =
                writeln!(text, "{card:<2} {figure:>7}  {measured:<8}  {}", full_name(table, row));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_by_table_letter_or_name() {
        let tables = Table::all().expect("they can be read");
        let count = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let selection = Selection::new(&tables, &names).map_err(|error| error.to_string())?;
            let counts = selection.tables.iter().map(|(_, rows)| rows.len());
            Ok::<_, String>((selection.tables.len(), counts.sum::<usize>()))
        };
        assert_eq!(count(&["dbench: PV at 2x"]), Ok((1, 1)));
        assert_eq!(count(&["dbench: PV at 2x", "dbench"]), Ok((1, 7)));
        assert_eq!(count(&["f"]).map(|(tables, _)| tables), Ok(2));
        assert_eq!(count(&[]).map(|(number, _)| number), Ok(tables.len()));
        let error = count(&["dbench", "dbench: PV at 9x"]).expect_err("there is none");
        assert!(error.starts_with("--row dbench: PV at 9x: ") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn every_row_is_listed_once() {
        let tables = Table::all().expect("they can be read");
        let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
        let text = list(&tables);
        assert_eq!(text.lines().count(), rows);
        assert!(text.contains("1.17x  measured  dbench: PV at 2x\n"), "{text}");
    }
}
