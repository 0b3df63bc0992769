//! Reads a run for a study.

use std::{cmp::Reverse, path::Path};

use super::super::store::{self, Contents, StoreError, record::CellLine};

/// A run and its directory.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Directory, as the user wrote it.
    pub source: String,
    /// The contents of its store.
    pub contents: Contents,
}

impl RunRecord {
    /// Reads the run in directory `folder`.
    pub fn read(folder: &Path) -> Result<Self, StoreError> {
        Ok(Self { source: folder.display().to_string(), contents: store::read(folder)? })
    }
}

/// A run that was given twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// The directory that is left out, or of which some cells are.
    pub source: String,
    /// That of the same run.
    pub first: String,
    /// So many cells of `source` count, as only it has them: a copy was resumed for itself.
    pub own_cells: usize,
}

/// Are these copies of one run that have cells in common?
pub fn share_cells(one: &RunRecord, other: &RunRecord) -> bool {
    let (cells, others) = (&one.contents.cells, &other.contents.cells);
    is_same_run(one, other) && cells.iter().any(|cell| others.contains(cell))
}

/// Are these copies of one run? They began at the same moment with the same seed and spec.
fn is_same_run(one: &RunRecord, other: &RunRecord) -> bool {
    let (one, other) = (&one.contents.run, &other.contents.run);
    (one.at_ms, one.seed, &one.spec, &one.name, one.part)
        == (other.at_ms, other.seed, &other.spec, &other.name, other.part)
}

/// Leaves each cell of copies of a run once: the same measurements under two names would count twice, and feign precision. Of
/// copies the one with the most cells comes first, and one without cells of its own is left out.
pub fn once(records: Vec<RunRecord>) -> (Vec<RunRecord>, Vec<Repeat>) {
    let (mut left, mut repeats) = (Vec::<RunRecord>::new(), Vec::new());
    for mut record in copies_together(records) {
        let copies: Vec<&RunRecord> =
            left.iter().filter(|copy| is_same_run(copy, &record)).collect();
        let Some(first) = copies.first().map(|first| first.source.clone()) else {
            left.push(record);
            continue;
        };
        let is_own =
            |cell: &CellLine| copies.iter().all(|copy| !copy.contents.cells.contains(cell));
        let all = record.contents.cells.len();
        record.contents.cells.retain(is_own);
        let own_cells = record.contents.cells.len();
        if own_cells < all || all == 0 {
            repeats.push(Repeat { source: record.source.clone(), first, own_cells });
        }
        if own_cells > 0 {
            left.push(record);
        }
    }
    (left, repeats)
}

/// Copies beside each other, where the first of them was, those with more cells first.
fn copies_together(records: Vec<RunRecord>) -> Vec<RunRecord> {
    let place = |record: &RunRecord| records.iter().position(|other| is_same_run(other, record));
    let places: Vec<Option<usize>> = records.iter().map(place).collect();
    let mut all: Vec<_> = places.into_iter().zip(records).collect();
    all.sort_by_key(|(place, record)| (*place, Reverse(record.contents.cells.len())));
    all.into_iter().map(|(_, record)| record).collect()
}
