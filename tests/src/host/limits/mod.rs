//! Inputs beyond a limit: files, lines, outputs, and limits of this system. One test over a table:
//! each row feeds an input to the product, which must end as the row says, with one line that says
//! what to do, within a memory bound, and with every file unchanged.

mod guests;
mod hosts;
mod inputs;
mod row;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use anyhow::ensure;

use crate::{facts::need_kvm, form::by_form, tests};

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
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Relaxed);
                    let Some(row) = rows.get(place) else { break };
                    let tried = row.try_it();
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((place, tried));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(place, _)| *place);
    print!("{}", table(&rows, &found));
    let wrong: Vec<String> = found
        .iter()
        .filter_map(|(place, tried)| {
            let error = tried.as_ref().err()?;
            Some(format!("{}: {error:#}", rows[*place].input))
        })
        .collect();
    ensure!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    Ok(())
}

fn table(rows: &[&Row], found: &[(usize, anyhow::Result<Found>)]) -> String {
    let head = format!(
        "\n{:<50} {:<28} {:>6} {:>8} {:>6}  what is said\n",
        "input", "limit", "status", "memory", "time"
    );
    let lines = found.iter().map(|(place, tried)| {
        let Row { input, limit, .. } = rows[*place];
        match tried {
            Ok(found) => format!("{input:<50} {limit:<28} {found}\n"),
            Err(_) => format!("{input:<50} {limit:<28} WRONG\n"),
        }
    });
    head + &lines.collect::<String>()
}
