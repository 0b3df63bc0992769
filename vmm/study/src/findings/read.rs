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
