//! The directory of a sweep, beside the store's own files.
//!
//! ```text
//! DIR/bin/                                 the program and its kernels, read only
//! DIR/submissions/K/submission.json        what was submitted
//! DIR/submissions/K/script.sh, UNIT.log    how, and what its tasks printed
//! DIR/control/stop.K                       tasks of this submission begin no further cell
//! ```

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{OFlags, statfs};
use tempfile::Builder;
use thiserror::Error;

use super::Submission;
use base::{files, io_errors::without_path, shown, units::ByteSize};
use study::store::sweep::PARTS;

/// The directory of submissions.
const SUBMISSIONS: &str = "submissions";
/// The file that describes a submission.
const DESCRIPTION: &str = "submission.json";
/// The directory of the program and its kernels.
const BIN: &str = "bin";
/// The directory of orders to tasks.
const CONTROL: &str = "control";

/// Longest description of a submission.
const LONGEST: ByteSize = ByteSize::mib(16);

/// File systems that only one host sees, or that show every write at once (`statfs(2)`): ext4, xfs,
/// btrfs, tmpfs, overlayfs.
const LOCAL: [i64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630];

/// What the names of all jobs of all sweeps begin with.
pub const JOBS: &str = "pvticket-";

/// What an engine calls a submission of the sweep with this id.
pub fn name_of(id: &str, number: u32) -> String {
    format!("{id}-{number}")
}

/// A file of the sweep cannot be used.
#[derive(Debug, Error)]
#[error("cannot {what} {file}: {reason}", file = .file.display())]
pub struct DirError {
    what: &'static str,
    file: PathBuf,
    reason: String,
}

impl DirError {
    /// The system's error of an operation on a file.
    pub fn of(what: &'static str, file: &Path, error: &io::Error) -> Self {
        Self { what, file: file.to_owned(), reason: error.to_string() }
    }
}

fn failed<'a>(what: &'static str, file: &'a Path) -> impl FnOnce(io::Error) -> DirError + 'a {
    move |error| DirError::of(what, file, &error)
}

/// A file that is opened may not be a link: whoever can write to the directory would choose what is overwritten.
const NO_LINK: i32 = OFlags::NOFOLLOW.bits() as i32;

/// Makes a directory, which may be there, but not as a link.
fn make(place: &Path) -> Result<(), DirError> {
    match fs::symlink_metadata(place) {
        Ok(metadata) if !metadata.is_dir() => {
            let reason = "it is a link or a file; remove it".to_owned();
            Err(DirError { what: "make", file: place.to_owned(), reason })
        }
        Ok(_) => Ok(()),
        Err(_) => fs::create_dir_all(place).map_err(failed("make", place)),
    }
}

/// Replaces a file at once, or makes it. A link at its place is replaced, and not followed.
fn replace(
    file: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), DirError> {
    let place = file.parent().unwrap_or(file);
    let write = || {
        let mut new = Builder::new().tempfile_in(place).map_err(without_path)?;
        fill(new.as_file_mut())?;
        new.as_file().set_permissions(Permissions::from_mode(mode))?;
        new.as_file().sync_all()?;
        new.persist(file).map_err(|error| error.error)?;
        File::open(place)?.sync_all()
    };
    write().map_err(failed("write", file))
}

/// A sweep's directory.
#[derive(Debug, Clone)]
pub struct SweepDir(PathBuf);

impl SweepDir {
    /// The directory at this path, which need not be absolute.
    pub fn new(dir: &Path) -> Result<Self, DirError> {
        std::path::absolute(dir).map(Self).map_err(failed("find", dir))
    }

    /// The absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes its directories.
    pub fn prepare(&self) -> Result<(), DirError> {
        [PARTS, SUBMISSIONS, BIN, CONTROL].iter().try_for_each(|name| make(&self.0.join(name)))
    }

    /// The program that tasks run.
    pub fn program(&self) -> PathBuf {
        self.0.join(BIN).join("pvticket")
    }

    /// A guest kernel.
    pub fn kernel(&self, name: &str) -> PathBuf {
        self.0.join(BIN).join(name)
    }

    /// Copies a file that tasks use, so that later changes of the original do not reach them.
    pub fn keep(&self, from: &Path, to: &Path) -> Result<(), DirError> {
        let mut original = File::open(from).map_err(failed("copy", from))?;
        let mode = if to == self.program() { 0o555 } else { 0o444 };
        replace(to, mode, |new| io::copy(&mut original, new).map(drop))
    }

    /// Stores the script of a submission.
    pub fn keep_script(&self, submission: u32, script: &str) -> Result<(), DirError> {
        let file = self.submission(submission).join("script.sh");
        replace(&file, 0o644, |new| new.write_all(script.as_bytes()))
    }

    /// Opens what a unit's task prints, to add to it.
    pub fn open_log(&self, submission: u32, unit: u32) -> io::Result<File> {
        let file = self.log(submission, unit);
        OpenOptions::new().append(true).create(true).custom_flags(NO_LINK).open(file)
    }

    /// The directory of a submission.
    pub fn submission(&self, number: u32) -> PathBuf {
        self.0.join(SUBMISSIONS).join(number.to_string())
    }

    /// What a unit's task printed.
    pub fn log(&self, submission: u32, unit: u32) -> PathBuf {
        self.submission(submission).join(format!("{unit}.log"))
    }

    /// The last line that a unit's task printed.
    pub fn last_words(&self, submission: u32, unit: u32) -> Option<String> {
        let bytes = files::read(&self.log(submission, unit), LONGEST).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
    }

    /// Makes the directory of the next submission, and returns its number. One that is there already, with whatever somebody
    /// has put into it, is not used: Slurm appends to the logs in it through links. Nor is a number whose tasks would
    /// be told to stop.
    pub fn begin(&self, last: Option<u32>) -> Result<u32, DirError> {
        let mut number = last.map_or(Some(0), |last| last.checked_add(1));
        while let Some(next) = number {
            let place = self.submission(next);
            let stop = self.stop_file(next);
            let is_stopped = match fs::symlink_metadata(&stop) {
                Ok(_) => true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(DirError::of("look for", &stop, &error)),
            };
            match DirBuilder::new().mode(0o755).create(&place) {
                Ok(()) if !is_stopped => return Ok(next),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(DirError::of("make", &place, &error)),
            }
            number = next.checked_add(1);
        }
        let reason = "the last submission has the highest number; start the sweep anew".to_owned();
        Err(DirError { what: "make", file: self.0.join(SUBMISSIONS), reason })
    }

    /// Stores what is submitted; its former description is replaced at once.
    pub fn describe(&self, submission: &Submission) -> Result<(), DirError> {
        let place = self.submission(submission.number);
        make(&place)?;
        replace(&place.join(DESCRIPTION), 0o644, |new| Ok(serde_json::to_writer(new, submission)?))
    }

    /// All submissions of the sweep with this id, in their order. One whose description was never written is left
    /// out: nothing was submitted. What names other jobs than the sweep's is refused: they would be watched,
    /// and cancelled.
    pub fn submissions(&self, id: &str) -> Result<Vec<Submission>, DirError> {
        let is_of_sweeps =
            id.starts_with(JOBS) && !id.contains(|c: char| c == ',' || shown::is_hidden(c));
        let place = self.0.join(SUBMISSIONS);
        let mut all: Vec<Submission> = Vec::new();
        for entry in fs::read_dir(&place).map_err(failed("list", &place))? {
            let entry = entry.map_err(failed("list", &place))?;
            let file = entry.path().join(DESCRIPTION);
            // What may not be looked at may be submitted: it would be submitted again.
            if !files::is_there(&file).map_err(failed("look for", &file))? {
                continue;
            }
            let bytes = files::read(&file, LONGEST);
            let damaged = |reason: String| DirError { what: "read", file: file.clone(), reason };
            let bytes = bytes.map_err(|error| damaged(error.to_string()))?;
            let read = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()));
            let submission: Submission = read?;
            if !is_of_sweeps || submission.name != name_of(id, submission.number) {
                return Err(damaged("it names jobs that are not this sweep's".into()));
            }
            if entry.file_name() != *submission.number.to_string() {
                let number = submission.number;
                return Err(damaged(format!("it says that it is submission {number}")));
            }
            all.push(submission);
        }
        all.sort_by_key(|submission| submission.number);
        Ok(all)
    }

    /// Tells the tasks of a submission to begin no further cell.
    pub fn stop(&self, submission: u32) -> Result<(), DirError> {
        let file = self.stop_file(submission);
        let open = OpenOptions::new().write(true).create(true).custom_flags(NO_LINK).open(&file);
        open.map(drop).map_err(failed("make", &file))
    }

    /// The file whose presence tells them so.
    pub fn stop_file(&self, submission: u32) -> PathBuf {
        self.0.join(CONTROL).join(format!("stop.{submission}"))
    }

    /// May other hosts write here, whose files appear with delay?
    pub fn is_shared(&self) -> bool {
        statfs(&self.0).is_ok_and(|facts| !LOCAL.contains(&facts.f_type))
    }
}

#[cfg(test)]
mod tests;
