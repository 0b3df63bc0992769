//! Switches features of this host's scheduler, and back.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
};

use thiserror::Error;

use base::sched_features::{FILE, SchedFeatures};

/// The longest text of the file: some thirty names.
const LONGEST: usize = 4096;

/// Why a feature cannot be switched.
#[derive(Debug, Error)]
pub enum FeatureError {
    /// The file of the features cannot be opened.
    #[error("cannot open {FILE}")]
    Open(#[source] io::Error),
    /// The kernel refuses it.
    #[error("the host's kernel does not switch the scheduler's feature {0}")]
    Refused(String, #[source] io::Error),
    /// The kernel took the name, and the file says otherwise.
    #[error("the host's kernel has not switched the scheduler's feature {0}")]
    NotTaken(String),
    /// The file cannot be read any more.
    #[error("cannot read {FILE}")]
    Read(#[source] io::Error),
}

/// Switches these features of this host. Nothing stays open through which the caller could switch them again: the file would
/// stay usable once it has given up its capabilities.
pub fn switch(asked: &SchedFeatures) -> Result<(), FeatureError> {
    FeatureSwitch::open().map_err(FeatureError::Open)?.switch(asked)
}

/// The open file of the features, for processes that run no guest.
#[derive(Debug)]
pub struct FeatureSwitch {
    file: File,
    /// The file's text when it was opened.
    before: String,
}

impl FeatureSwitch {
    /// Opens it, which takes debugfs and root.
    pub fn open() -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(FILE)?;
        let mut before = String::new();
        file.read_to_string(&mut before)?;
        Ok(Self { file, before })
    }

    /// The state of all features when it was opened.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Switches these features; those that were switched are switched back if one cannot be.
    fn switch(&self, asked: &SchedFeatures) -> Result<(), FeatureError> {
        let switched = self.write_and_check(asked);
        if switched.is_err() {
            self.restore(asked);
        }
        switched
    }

    fn write_and_check(&self, asked: &SchedFeatures) -> Result<(), FeatureError> {
        for name in asked.names() {
            self.write(name).map_err(|error| FeatureError::Refused(name.into(), error))?;
        }
        let mut text = [0; LONGEST];
        let count = self.file.read_at(&mut text, 0).map_err(FeatureError::Read)?;
        let now = String::from_utf8_lossy(&text[..count]);
        match asked.unlike(&now) {
            Some(name) => Err(FeatureError::NotTaken(name.into())),
            None => Ok(()),
        }
    }

    /// Switches these features back to how they were.
    pub fn restore(&self, asked: &SchedFeatures) {
        for name in asked.undo(&self.before) {
            // The feature was so before: the kernel has no reason to refuse it.
            let _ = self.write(name);
        }
    }

    /// One name is one write: the kernel parses each write on its own.
    fn write(&self, name: &str) -> io::Result<()> {
        (&self.file).write(name.as_bytes()).map(drop)
    }
}
