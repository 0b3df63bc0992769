//! User-supplied files: opened without waiting for another process, and read up to a limit.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use thiserror::Error;

use crate::units::ByteSize;

/// Reasons to reject a file.
#[derive(Debug, Error)]
pub enum FileError {
    /// Opening or reading it failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A directory.
    #[error("it is a directory")]
    Directory,
    /// A device, socket or FIFO.
    #[error("it is not a regular file")]
    NotRegular,
    /// A FIFO or device that yields no data.
    #[error("it is a FIFO without a writer, or an empty FIFO")]
    NoData,
    /// More bytes than allowed.
    #[error("it has more than {0}")]
    TooLong(ByteSize),
}

/// Returns the directory of a file: the current directory if the path has none.
pub fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a regular file. Rejects everything else: opening a device may have side effects, and opening a FIFO
/// blocks until there is a writer.
pub fn open_regular(path: &Path) -> Result<File, FileError> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(FileError::Directory);
    }
    if !kind.is_file() {
        return Err(FileError::NotRegular);
    }
    let file = open_nonblocking(path)?;
    // The file may have been replaced in the meantime.
    if file.metadata()?.is_file() { Ok(file) } else { Err(FileError::NotRegular) }
}

/// Whether the path is a regular file. Fails if this cannot be checked, as in a directory without search
/// permission.
pub fn is_file(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(data) => Ok(data.is_file()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Returns the first of these files that exists. Fails if none was found and one could not be checked.
pub fn first_existing(
    paths: impl IntoIterator<Item = PathBuf>,
) -> Result<Option<PathBuf>, (PathBuf, io::Error)> {
    let mut unknown = None;
    for path in paths {
        match is_file(&path) {
            Ok(true) => return Ok(Some(path)),
            Ok(false) => {}
            Err(error) => unknown = unknown.or(Some((path, error))),
        }
    }
    unknown.map_or(Ok(None), Err)
}

/// Reads an entire file or pipe of at most `limit` bytes. A pipe is read until its last writer closes it.
pub fn read(path: &Path, limit: ByteSize) -> Result<Vec<u8>, FileError> {
    let file = open_nonblocking(path)?;
    fcntl_setfl(&file, OFlags::empty()).map_err(io::Error::from)?;
    let mut bytes = Vec::new();
    file.take(limit.0.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        length if length > limit.0 => Err(FileError::TooLong(limit)),
        0 if !fs::metadata(path)?.is_file() => Err(FileError::NoData),
        _ => Ok(bytes),
    }
}

/// Reads a file or pipe like [`read`], as UTF-8 text.
pub fn read_text(path: &Path, limit: ByteSize) -> Result<String, FileError> {
    let text = String::from_utf8(read(path, limit)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text").into())
}

fn open_nonblocking(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(open(path, flags, Mode::empty())?.into())
}

// Miri does not support O_NONBLOCK.
#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn does_not_wait_for_fifos_without_writer() {
        let folder = TempDir::new().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(matches!(open_regular(&fifo), Err(FileError::NotRegular)));
        assert!(matches!(read(&fifo, ByteSize(9)), Err(FileError::NoData)));
        assert!(matches!(open_regular(folder.path()), Err(FileError::Directory)));
        assert!(matches!(open_regular(Path::new("/dev/zero")), Err(FileError::NotRegular)));
    }

    /// Regression: a kernel in a cache directory without search permission was reported as not built. (Root
    /// may enter such a directory, so the test uses a symlink to itself.)
    #[test]
    fn unreadable_directories_are_no_missing_files() {
        let folder = TempDir::new().unwrap();
        let [file, round] = ["file", "round"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&round, &round).unwrap();
        assert!(is_file(&file).unwrap());
        for missing in ["none", "file/none", "none/none", "."] {
            assert!(!is_file(&folder.path().join(missing)).unwrap(), "{missing}");
        }
        let hidden = round.join("file");
        assert!(is_file(&hidden).is_err());
        let missing = folder.path().join("none");
        let existing = first_existing([missing.clone(), hidden.clone(), file.clone()]);
        assert_eq!(existing.unwrap(), Some(file));
        assert_eq!(first_existing([missing.clone(), missing.clone()]).unwrap(), None);
        assert_eq!(first_existing([missing, hidden.clone()]).unwrap_err().0, hidden);
    }

    #[test]
    fn reads_files_up_to_the_limit() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "12345").unwrap();
        assert_eq!(read(&file, ByteSize(5)).unwrap(), b"12345");
        assert!(matches!(read(&file, ByteSize(4)), Err(FileError::TooLong(ByteSize(4)))));
        assert!(matches!(read(Path::new("/dev/zero"), ByteSize(4)), Err(FileError::TooLong(_))));
        fs::write(&file, "").unwrap();
        assert_eq!(read_text(&file, ByteSize(4)).unwrap(), "");
        fs::write(&file, [0xff]).unwrap();
        assert!(read_text(&file, ByteSize(4)).unwrap_err().to_string().contains("UTF-8"));
    }
}
