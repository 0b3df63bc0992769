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
        let mut tried = Vec::new();
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some(row) = rows.get(place) else { return tried };
            tried.push((place, attempt(row)));
        }
    };
    let mut tried: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().collect()
    });
    tried.sort_by_key(|(place, _)| *place);
    tried.into_iter().map(|(_, result)| result).collect()
}

/// Fails if any of `count` rows is wrong, with the reasons.
pub fn none_is_wrong(count: usize, wrong: &[String]) -> anyhow::Result<()> {
    ensure!(wrong.is_empty(), "{} of {count} rows:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
