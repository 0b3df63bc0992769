//! Reads a run for a study.

use std::path::Path;

use super::super::store::{self, Contents, StoreError};

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
    /// The directory that is left out.
    pub source: String,
    /// That of the same run.
    pub first: String,
}

/// Leaves each run once, of copies the one with the most cells: the same measurements under two names would count twice,
/// and feign precision. Runs are the same if they began at the same moment with the same seed and spec.
pub fn once(records: Vec<RunRecord>) -> (Vec<RunRecord>, Vec<Repeat>) {
    let (mut left, mut repeats) = (Vec::<RunRecord>::new(), Vec::new());
    for record in records {
        let identity = |record: &RunRecord| {
            let run = &record.contents.run;
            (run.at_ms, run.seed, run.spec.clone(), run.name.clone())
        };
        let Some(first) = left.iter_mut().find(|first| identity(first) == identity(&record)) else {
            left.push(record);
            continue;
        };
        let has_more = record.contents.cells.len() > first.contents.cells.len();
        let out = if has_more { std::mem::replace(first, record) } else { record };
        repeats.push(Repeat { source: out.source, first: first.source.clone() });
    }
    (left, repeats)
}
