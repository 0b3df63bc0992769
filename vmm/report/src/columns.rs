//! Text in columns, for all printed tables.

use std::ops::Range;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::NOTHING};

/// Rows of texts; a column is as wide as its widest text.
#[derive(Debug)]
pub struct Columns {
    table: Table,
    figures: Range<usize>,
}

impl Columns {
    /// Creates columns without rows; columns `figures` are right-aligned.
    pub fn new(figures: Range<usize>) -> Self {
        let mut table = Table::new();
        table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        Self { table, figures }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl ToString>) {
        self.table.add_row(cells);
    }

    /// Width of the lines with `gap` between the columns.
    pub fn width(&self, gap: u16) -> usize {
        let widths = self.table.column_max_content_widths();
        let gaps = usize::from(gap) * widths.len().saturating_sub(1);
        widths.into_iter().map(usize::from).sum::<usize>() + gaps
    }

    /// One line per row, with `gap` between the columns.
    pub fn lines(mut self, gap: u16) -> Vec<String> {
        for (ix, column) in self.table.column_iter_mut().enumerate() {
            column.set_padding((0, gap));
            if self.figures.contains(&ix) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self.table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// The lines as one text.
    pub fn text(self, gap: u16) -> String {
        self.lines(gap).join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_align_right_with_wide_letters() {
        let mut columns = Columns::new(1..2);
        columns.row(["lock", "rate", ""]);
        columns.row(["\u{6f22}\u{5b57}-ticket", "1.00k", "x"]);
        columns.row(["mcs".to_owned(), 812.to_string(), String::new()]);
        assert_eq!(columns.width(2), 11 + 2 + 5 + 2 + 1);
        let lines =
            ["lock          rate", "\u{6f22}\u{5b57}-ticket  1.00k  x", "mcs            812"];
        assert_eq!(columns.lines(2), lines);
    }
}
