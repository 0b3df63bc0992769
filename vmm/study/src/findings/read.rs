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
    pub unique_cells: usize,
}

/// Whether these are copies of one run that have cells in common.
pub fn share_cells(a: &RunRecord, b: &RunRecord) -> bool {
    let (cells, other_cells) = (&a.contents.cells, &b.contents.cells);
    is_same_run(a, b) && cells.iter().any(|cell| other_cells.contains(cell))
}

/// Whether these are copies of one run, which began at the same moment with the same seed and spec.
fn is_same_run(a: &RunRecord, b: &RunRecord) -> bool {
    let (a, b) = (&a.contents.run, &b.contents.run);
    (a.at_ms, a.seed, &a.spec, &a.name, a.part) == (b.at_ms, b.seed, &b.spec, &b.name, b.part)
}

/// Keeps each cell of copied runs once: the same measurements under two names would count twice and feign
/// precision. The largest copy comes first, and copies without further cells are left out.
pub fn without_repeats(records: Vec<RunRecord>) -> (Vec<RunRecord>, Vec<Repeat>) {
    let (mut unique, mut repeats) = (Vec::<RunRecord>::new(), Vec::new());
    for mut record in copies_together(records) {
        let copies: Vec<&RunRecord> =
            unique.iter().filter(|copy| is_same_run(copy, &record)).collect();
        let Some(first) = copies.first().map(|first| first.source.clone()) else {
            unique.push(record);
            continue;
        };
        let is_unique =
            |cell: &CellLine| copies.iter().all(|copy| !copy.contents.cells.contains(cell));
        let total = record.contents.cells.len();
        record.contents.cells.retain(is_unique);
        let own_cells = record.contents.cells.len();
        if own_cells < total || total == 0 {
            repeats.push(Repeat { source: record.source.clone(), first, unique_cells: own_cells });
        }
        if own_cells > 0 {
            unique.push(record);
        }
    }
    (unique, repeats)
}

/// Brings copies together at the position of the first copy, larger copies first.
fn copies_together(records: Vec<RunRecord>) -> Vec<RunRecord> {
    let place = |record: &RunRecord| records.iter().position(|other| is_same_run(other, record));
    let places: Vec<Option<usize>> = records.iter().map(place).collect();
    let mut placed: Vec<_> = places.into_iter().zip(records).collect();
    placed.sort_by_key(|(place, record)| (*place, Reverse(record.contents.cells.len())));
    placed.into_iter().map(|(_, record)| record).collect()
}
