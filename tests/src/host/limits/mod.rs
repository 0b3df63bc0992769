//! Inputs beyond a limit: files, lines, outputs, and limits of this system. One test over a table:
//! each row feeds an input to the product, which must end as the row says, with one line that says
//! what to do, within a memory bound, and with every file unchanged.

mod guests;
mod hosts;
mod inputs;
mod row;

use crate::{facts::need_kvm, form::by_form, rows, tests};

use row::{Found, Row};

tests![every_input_has_a_limit_and_its_message];

/// Rows that run in parallel.
const SIDE_BY_SIDE: usize = 2;

fn every_input_has_a_limit_and_its_message() -> anyhow::Result<()> {
    need_kvm()?;
    let rows: Vec<&Row> = [inputs::ROWS, guests::ROWS, hosts::ROWS, by_form(&[], inputs::DEAR)]
        .into_iter()
        .flatten()
        .collect();
    let tried = rows::each(&rows, SIDE_BY_SIDE, |row| row.try_it());
    print!("{}", table(&rows, &tried));
    let wrong = |(row, tried): (&&Row, &anyhow::Result<Found>)| {
        Some(format!("{}: {:#}", row.input, tried.as_ref().err()?))
    };
    let wrong: Vec<String> = rows.iter().zip(&tried).filter_map(wrong).collect();
    rows::none_is_wrong(rows.len(), &wrong)
}

fn table(rows: &[&Row], tried: &[anyhow::Result<Found>]) -> String {
    let head = format!(
        "\n{:<50} {:<28} {:>6} {:>8} {:>6}  what is said\n",
        "input", "limit", "status", "memory", "time"
    );
    let lines = rows.iter().zip(tried).map(|(Row { input, limit, .. }, tried)| match tried {
        Ok(found) => format!("{input:<50} {limit:<28} {found}\n"),
        Err(_) => format!("{input:<50} {limit:<28} WRONG\n"),
    });
    head + &lines.collect::<String>()
}
