//! Reads a run for a study.

use std::{cmp::Reverse, path::Path};

use super::super::store::{self, Contents, StoreError, record::CellLine};

/// A run and its directory.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Directory, as written by the user.
    pub source: String,
    /// Contents of its store.
    pub contents: Contents,
}

impl RunRecord {
    /// Reads the run in the directory `folder`.
    pub fn read(folder: &Path) -> Result<Self, StoreError> {
        Ok(Self { source: folder.display().to_string(), contents: store::read(folder)? })
    }
}

/// A run that was supplied twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// The directory that is left out, wholly or in part.
    pub source: String,
    /// The directory of the first copy.
    pub first: String,
    /// Number of cells of `source` that count because only it has them: the copy was resumed separately.
    pub own_cells: usize,
}

/// Whether these are copies of one run that have cells in common.
pub fn share_cells(one: &RunRecord, other: &RunRecord) -> bool {
    let (cells, others) = (&one.contents.cells, &other.contents.cells);
    is_same_run(one, other) && cells.iter().any(|cell| others.contains(cell))
}

/// Whether these are copies of one run, which began at the same moment with the same seed and spec.
fn is_same_run(one: &RunRecord, other: &RunRecord) -> bool {
    let (one, other) = (&one.contents.run, &other.contents.run);
    (one.at_ms, one.seed, &one.spec, &one.name, one.part)
        == (other.at_ms, other.seed, &other.spec, &other.name, other.part)
}

/// Keeps each cell of copied runs once: the same measurements under two names would count twice and feign
/// precision. The largest copy comes first, and copies without further cells are left out.
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

/// Brings copies together at the position of the first copy, larger copies first.
fn copies_together(records: Vec<RunRecord>) -> Vec<RunRecord> {
    let place = |record: &RunRecord| records.iter().position(|other| is_same_run(other, record));
    let places: Vec<Option<usize>> = records.iter().map(place).collect();
    let mut all: Vec<_> = places.into_iter().zip(records).collect();
    all.sort_by_key(|(place, record)| (*place, Reverse(record.contents.cells.len())));
    all.into_iter().map(|(_, record)| record).collect()
}
