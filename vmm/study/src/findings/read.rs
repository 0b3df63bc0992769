//! Reads a run for a study.

use std::{mem, path::Path};

use super::super::store::{self, Contents, StoreError, record::CellLine};

/// A run and its directory.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its directory, as the user wrote it.
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

/// Are these copies of one run? They began at the same moment with the same seed and spec.
pub fn is_same_run(one: &RunRecord, other: &RunRecord) -> bool {
    let (one, other) = (&one.contents.run, &other.contents.run);
    (one.at_ms, one.seed, &one.spec, &one.name)
        == (other.at_ms, other.seed, &other.spec, &other.name)
}

/// Leaves each cell of copies of a run once: the same measurements under two names would count twice, and feign precision. A
/// copy that has no cells of its own is left out, of copies the one with fewer cells.
pub fn once(records: Vec<RunRecord>) -> (Vec<RunRecord>, Vec<Repeat>) {
    let (mut left, mut repeats) = (Vec::<RunRecord>::new(), Vec::new());
    for mut record in records {
        let Some(first) = left.iter_mut().find(|first| is_same_run(first, &record)) else {
            left.push(record);
            continue;
        };
        if record.contents.cells.len() > first.contents.cells.len() {
            mem::swap(first, &mut record);
        }
        let first = first.source.clone();
        let all = record.contents.cells.len();
        let copies = || left.iter().filter(|copy| is_same_run(copy, &record));
        let own = |cell: &CellLine| !copies().any(|copy| copy.contents.cells.contains(cell));
        let kept: Vec<CellLine> =
            record.contents.cells.iter().filter(|cell| own(cell)).cloned().collect();
        let own_cells = kept.len();
        if own_cells < all || all == 0 {
            repeats.push(Repeat { source: record.source.clone(), first, own_cells });
        }
        if own_cells > 0 {
            record.contents.cells = kept;
            left.push(record);
        }
    }
    (left, repeats)
}
