//! A run, as a study reads it.

use std::path::Path;

use super::super::store::{self, Contents, StoreError};

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its directory, as the user wrote it.
    pub source: String,
    /// All that its store has.
    pub contents: Contents,
}

impl RunRecord {
    /// Reads the run in a directory.
    pub fn read(folder: &Path) -> Result<Self, StoreError> {
        Ok(Self { source: folder.display().to_string(), contents: store::read(folder)? })
    }
}
