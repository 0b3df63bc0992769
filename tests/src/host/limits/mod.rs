//! Inputs beyond a limit: files, lines, outputs, and limits of this system. One test over a table:
//! each row feeds an input to the product, which must end as the row requires, with one line on how
//! to proceed, within a memory bound, and with every file unchanged.

mod guests;
mod hosts;
mod inputs;
mod row;

use row::Row;

use crate::{prelude::*, rows};

kvm::tests![every_input_has_a_limit_and_its_message];

/// Rows that run in parallel.
const SIDE_BY_SIDE: usize = 2;

fn every_input_has_a_limit_and_its_message() -> anyhow::Result<()> {
    let rows: Vec<&Row> = [inputs::ROWS, guests::ROWS, hosts::ROWS, by_form(&[], inputs::LONG)]
        .into_iter()
        .flatten()
        .collect();
    rows::check(&rows, SIDE_BY_SIDE, |row| row.run().context(row.input))
}
