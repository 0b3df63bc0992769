//! Files that users name: opened without waiting for another process, and read up to a limit.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use thiserror::Error;

use crate::units::ByteSize;

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a directory.
    #[error("it is a directory")]
    Directory,
    /// It is a device, a socket or a FIFO.
    #[error("it is not a regular file")]
    NotRegular,
    /// It is a FIFO without a writer, or an empty one.
    #[error("it is a FIFO without a writer, or an empty one")]
    Silent,
    /// It has more bytes than such a file may have.
    #[error("it has more than {0}")]
    TooLong(ByteSize),
}

/// Opens a regular file, and nothing else: opening a device may have side effects, and opening a
/// FIFO blocks until there is a writer.
pub fn regular(path: &Path) -> Result<File, FileError> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(FileError::Directory);
    }
    if !kind.is_file() {
        return Err(FileError::NotRegular);
    }
    let file = open_now(path)?;
    // It may have been replaced in the meantime.
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(FileError::NotRegular),
    }
}

/// Reads a whole file or pipe of at most `limit` bytes. A pipe is read for as long as a process has
/// it open for writing.
pub fn read(path: &Path, limit: ByteSize) -> Result<Vec<u8>, FileError> {
    let file = open_now(path)?;
    fcntl_setfl(&file, OFlags::empty()).map_err(io::Error::from)?;
    let mut bytes = Vec::new();
    file.take(limit.0.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        length if length > limit.0 => Err(FileError::TooLong(limit)),
        0 if !fs::metadata(path)?.is_file() => Err(FileError::Silent),
        _ => Ok(bytes),
    }
}

/// Reads a file or pipe like [`read`], as UTF-8 text.
pub fn read_text(path: &Path, limit: ByteSize) -> Result<String, FileError> {
    let text = String::from_utf8(read(path, limit)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text").into())
}

fn open_now(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(open(path, flags, Mode::empty())?.into())
}

// Miri opens no file with O_NONBLOCK.
#[cfg(all(test, not(miri)))]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_fifo_without_a_writer_is_not_waited_for() {
        let folder = TempDir::new().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(matches!(regular(&fifo), Err(FileError::NotRegular)));
        assert!(matches!(read(&fifo, ByteSize(9)), Err(FileError::Silent)));
        assert!(matches!(regular(folder.path()), Err(FileError::Directory)));
        assert!(matches!(regular(Path::new("/dev/zero")), Err(FileError::NotRegular)));
    }

    #[test]
    fn a_file_is_read_up_to_the_limit() {
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
