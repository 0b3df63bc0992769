//! The result of a run: `cells.jsonl` in its directory, with one line of JSON per cell, appended and synced
//! before the next cell begins.
//!
//! If the program is killed, only the last line may be incomplete. It is recognized by its missing newline
//! and cut off when the run is resumed.

pub mod export;
pub mod parts;
mod read;
pub mod record;
mod tally;

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, OFlags, flock};
use tempfile::Builder;
use thiserror::Error;

use read::open_regular;
#[cfg(any(test, feature = "testing"))]
pub(crate) use read::read_from;
pub use read::{Contents, Torn, read};
use record::{Line, RunLine};
pub use tally::Tally;

use base::{files::FileError, io_errors::without_path};

/// Name of the file in a run's directory.
pub const FILE: &str = "cells.jsonl";

/// Timeout for a store's lock: by then, a child of a killed run has executed its program or died, even on a
/// busy host, where it needs a time slice for either.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Errors of a store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The directory has a store already.
    #[error("{0} already has a run: resume it with --resume, or name another directory")]
    Exists(PathBuf),
    /// The directory has no store.
    #[error("{0} has no run: it has no {FILE}")]
    Absent(PathBuf),
    /// The store's file or a part's directory is a link, whose creator would choose the file written to.
    #[error("{0} is a link: name the directory that has the file itself")]
    Link(PathBuf),
    /// Another process holds the store's lock.
    #[error("{0} is in use by another pvticket")]
    InUse(PathBuf),
    /// The file system returned an error.
    #[error("cannot {what} {file}: {error}", file = .file.display())]
    File {
        /// The operation, as a verb.
        what: &'static str,
        /// The store's file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not a regular file.
    #[error("{file}: {1}", file = .0.display())]
    Unusable(PathBuf, FileError),
    /// A line other than a torn last one cannot be parsed.
    #[error("{file} is damaged in line {line}: {why}", file = .file.display())]
    Damaged {
        /// The store's file.
        file: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// Description of the damage.
        why: String,
    },
    /// The parts in a directory are from different runs.
    #[error("{dir} has parts of a run in {first} parts and of a run in {second}: use another directory for one of them", dir = .dir.display())]
    Parts {
        /// The directory of the parts.
        dir: PathBuf,
        /// The number of parts of one run.
        first: u32,
        /// The number of parts of the other run.
        second: u32,
    },
    /// Another version of pvticket wrote the store.
    #[error(
        "{file} has format {format}, this version of pvticket reads format {ours}: use the pvticket that wrote it, or measure again",
        file = .file.display(),
        ours = record::FORMAT
    )]
    Format {
        /// The store's file.
        file: PathBuf,
        /// The format of the file.
        format: u32,
    },
}

/// Wraps an I/O error of an operation on a file.
fn failed<'a>(what: &'static str, file: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
    move |error| StoreError::File { what, file: file.to_owned(), error }
}

/// A store opened for writing, under an exclusive lock.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
}

impl Store {
    /// Creates a store in `dir`, and `dir` if needed.
    pub fn create(dir: &Path, run: RunLine) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(failed("make", dir))?;
        let path = dir.join(FILE);
        let mut new = Builder::new();
        new.prefix(".").suffix(".new").append(true).permissions(Permissions::from_mode(0o644));
        let new = new.tempfile_in(dir).map_err(without_path).map_err(failed("make", &path))?;
        let (file, new) = new.into_parts();
        let mut store = Self { path, file };
        store.lock(dir)?;
        store.append(&Line::Run(Box::new(run)))?;
        // The store gets its name only when this line is complete.
        new.persist_noclobber(&store.path).map_err(|failure| match failure.error.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists(dir.to_owned()),
            _ => failed("make", &store.path)(failure.error),
        })?;
        // Makes the new directory entry durable.
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))?;
        Ok(store)
    }

    /// Opens the store in `dir` to resume its run. Changes nothing: a torn last line must be cut off with
    /// [`repair`](Self::repair) before anything is appended.
    pub fn resume(dir: &Path) -> Result<(Self, Contents), StoreError> {
        let path = dir.join(FILE);
        open_regular(&path, dir)?;
        let no_link = OFlags::NOFOLLOW.bits() as i32;
        let open = OpenOptions::new().append(true).custom_flags(no_link).open(&path);
        let file = open.map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
                StoreError::Link(path.clone())
            }
            _ => failed("open", &path)(error),
        })?;
        let store = Self { path, file };
        // Locked before reading, because another process may be writing a line.
        store.lock(dir)?;
        let contents = read(dir)?;
        Ok((store, contents))
    }

    /// Cuts off a torn last line.
    pub fn repair(&mut self, torn: Torn) -> Result<(), StoreError> {
        let cut = self.file.set_len(torn.at).and_then(|()| self.file.sync_all());
        cut.map_err(failed("repair", &self.path))
    }

    /// Takes the store's lock. A run that was killed while it started a worker leaves the lock to the child
    /// until the child executes its program or dies, so a held lock is retried for [`LOCK_TIMEOUT`].
    fn lock(&self, dir: &Path) -> Result<(), StoreError> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StoreError::InUse(dir.to_owned()));
                }
                Err(error) => return Err(failed("lock", &self.path)(error.into())),
            }
        }
    }

    /// Appends a line and syncs it to the disk.
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
