//! What a run leaves behind: `cells.jsonl` in its directory, a line of JSON for each cell, appended
//! and synced before the next one begins.
//!
//! Whatever kills the program, the file is whole but for its last line, and a last line that is
//! torn is known by its missing end: it is cut off when the run is resumed.

pub mod export;
mod read;
pub mod record;

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use tempfile::Builder;
use thiserror::Error;

use read::open_regular;
#[cfg(test)]
pub(in crate::lab) use read::read_from;
pub use read::{Contents, Torn, read};
use record::{Line, RunLine};

use crate::files::FileError;

/// The file in a run's directory.
pub const FILE: &str = "cells.jsonl";

/// A store that cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is one already.
    #[error("{0} has a run already: resume it with --resume, or name another directory")]
    Exists(PathBuf),
    /// There is none.
    #[error("{0} has no run: it has no {FILE}")]
    Absent(PathBuf),
    /// Somebody else writes it.
    #[error("{0} is in use by another pvticket")]
    InUse(PathBuf),
    /// The file system.
    #[error("cannot {what} {file}: {error}", file = .file.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        file: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// What is no file of ours.
    #[error("{file}: {1}", file = .0.display())]
    Odd(PathBuf, FileError),
    /// A line in its midst is none of ours.
    #[error("{file} is damaged in line {line}: {why}", file = .file.display())]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// Another version's.
    #[error("{file} is of format {found}, this pvticket reads format {ours}", file = .file.display(), ours = record::FORMAT)]
    Format {
        /// Which file.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
}

/// A failure of the file system in an operation on a file.
fn failed<'a>(what: &'static str, file: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
    move |error| StoreError::File { what, file: file.to_owned(), error }
}

/// A store that is written, by nobody else.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
}

impl Store {
    /// Makes one in `dir`, which is made if it is not there.
    pub fn create(dir: &Path, run: RunLine) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(failed("make", dir))?;
        let path = dir.join(FILE);
        let mut new = Builder::new();
        new.prefix(".").suffix(".new").append(true).permissions(Permissions::from_mode(0o644));
        let (file, new) = new.tempfile_in(dir).map_err(failed("make", &path))?.into_parts();
        let mut store = Self { path, file };
        store.lock(dir)?;
        store.append(&Line::Run(run))?;
        // A store has its name from the moment that it says what the run is.
        new.persist_noclobber(&store.path).map_err(|failure| match failure.error.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists(dir.to_owned()),
            _ => failed("make", &store.path)(failure.error),
        })?;
        // The file's name is in the directory.
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))?;
        Ok(store)
    }

    /// Opens the one in `dir` to go on with it, and changes nothing: a torn last line has to be cut
    /// off with [`repair`](Self::repair) before anything is appended.
    pub fn resume(dir: &Path) -> Result<(Self, Contents), StoreError> {
        let path = dir.join(FILE);
        open_regular(&path, dir)?;
        let open = OpenOptions::new().append(true).open(&path);
        let store = Self { file: open.map_err(failed("open", &path))?, path };
        // Another process may be in the midst of a line.
        store.lock(dir)?;
        let contents = read(dir)?;
        Ok((store, contents))
    }

    /// Cuts off a torn last line.
    pub fn repair(&mut self, torn: Torn) -> Result<(), StoreError> {
        let cut = self.file.set_len(torn.at).and_then(|()| self.file.sync_all());
        cut.map_err(failed("repair", &self.path))
    }

    fn lock(&self, dir: &Path) -> Result<(), StoreError> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::InUse(dir.to_owned())),
            Err(error) => Err(failed("lock", &self.path)(error.into())),
        }
    }

    /// Appends a line; it is on the disk when this returns.
    pub fn append(&mut self, line: &Line) -> Result<(), StoreError> {
        let text = serde_json::to_vec(line).map_err(io::Error::from);
        let append = text.and_then(|mut text| {
            text.push(b'\n');
            self.file.write_all(&text)?;
            self.file.sync_data()
        });
        append.map_err(failed("write", &self.path))
    }
}

#[cfg(test)]
mod tests;
