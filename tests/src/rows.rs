//! Tables whose rows are tried in parallel.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::prelude::*;

/// Tries each row, `at_once` in parallel; returns the results in the order of the rows.
pub fn each<T: Sync, R: Send>(
    rows: &[T],
    at_once: usize,
    attempt: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Relaxed);
            let Some(row) = rows.get(index) else { return results };
            results.push((index, attempt(row)));
        }
    };
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs `attempt` for all rows, at most `at_once` in parallel, and fails if one of them does.
pub fn check<T: Sync>(
    rows: &[T],
    at_once: usize,
    attempt: impl Fn(&T) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let results = each(rows, at_once, attempt).into_iter();
    let failures = results.filter_map(|result| Some(format!("{:#}", result.err()?)));
    check_failures(rows.len(), &Vec::from_iter(failures))
}

/// Fails if any of `count` rows is wrong, with the reasons.
pub fn check_failures(count: usize, failures: &[String]) -> anyhow::Result<()> {
    ensure!(failures.is_empty(), "{} of {count} rows:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}
