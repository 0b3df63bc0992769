//! Result files: each appears under its name when complete; until then, the previous contents stay.
//!
//! A result is written to a temporary file next to its target, created with an unpredictable name
//! and without following links. The file is synced and then renamed to the target. Pipes, terminals,
//! devices, and `/dev/stdout` even if redirected to a file, are written to directly.

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    io::{self, BufWriter, ErrorKind, Seek, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    fs::{Access, OFlags, access, fstat},
    io::Errno,
    stdio,
};
use tempfile::NamedTempFile;

use crate::{
    keeper::{self, Keeper},
    signals, streams,
};
use base::{files::folder, io_errors::without_path};

/// Interval between two checks for a reader of a named pipe.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Mode of a new file, before the umask.
const MODE: u32 = 0o666;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Delivery {
    /// A temporary file next to the target is renamed.
    Replaced,
    /// Written directly into the existing target.
    Direct,
    /// Written to our stdout or stderr, if the target is another name for it.
    Stream(streams::Stream),
}

/// The target of a result; a file stays unchanged until [`Target::write`] succeeds.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    delivery: Delivery,
    /// Opened by [`Target::open`].
    opened: Mutex<Option<Temporary>>,
}

impl Target {
    /// Creates a target at `path`. Fails if no file can be created there, so that the error appears
    /// before anything is measured.
    pub fn new(path: &Path) -> io::Result<Self> {
        let target = Self::unchecked(path)?;
        if target.delivery == Delivery::Replaced {
            drop(target.temporary()?);
        }
        Ok(target)
    }

    fn unchecked(path: &Path) -> io::Result<Self> {
        let delivery = delivery_for(path)?;
        if delivery != Delivery::Direct && path.file_name().is_none() {
            return Err(ErrorKind::IsADirectory.into());
        }
        Ok(Self { path: path.into(), delivery, opened: Mutex::default() })
    }

    /// Opens the temporary file early, for a process that is to be confined. The process can then
    /// write one result, and opens only [`Target::opened_late`] for it.
    pub fn open(&self) -> io::Result<()> {
        let temporary = match Temporary::new(self)? {
            Temporary::Named(file) => {
                let (file, name) = file.into_parts();
                let keeper = Keeper::start(&name, &self.path)?;
                // From now on, the keeper renames or removes the file.
                name.keep()?;
                Temporary::WithKeeper(file, keeper)
            }
            unnamed => unnamed,
        };
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(temporary);
        Ok(())
    }

    /// Returns the target if it is opened only when the result is complete.
    pub fn opened_late(&self) -> Option<&Path> {
        (self.delivery == Delivery::Direct).then_some(&self.path)
    }

    /// Writes the complete result.
    pub fn write(&self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let file = opened.map_or_else(|| Temporary::new(self), Ok)?;
        let (path, delivery) = (self.path.clone(), self.delivery.clone());
        let mut result = PendingResult { path, delivery, file };
        let mut out = BufWriter::new(result.out());
        fill(&mut out)?;
        out.flush()?;
        drop(out);
        result.commit()
    }

    /// Creates a temporary file next to the target.
    fn temporary(&self) -> io::Result<NamedTempFile> {
        let mut prefix = OsString::from(".");
        prefix.push(self.path.file_name().unwrap_or_default());
        prefix.push(".");
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(folder(&self.path))
            .map_err(without_path)?;
        // A replaced file keeps its permissions.
        if let Ok(metadata) = fs::symlink_metadata(&self.path)
            && metadata.is_file()
        {
            let mode = metadata.permissions().mode() & 0o777;
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(file)
    }
}

/// Writes a complete result to `path`.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    Target::unchecked(path)?.write(|out| out.write_all(bytes))
}

/// A result being written. Dropping it removes the temporary file.
#[derive(Debug)]
pub struct PendingResult {
    path: PathBuf,
    delivery: Delivery,
    file: Temporary,
}

#[derive(Debug)]
enum Temporary {
    /// Next to the target.
    Named(NamedTempFile),
    /// Next to the target, for a process that cannot rename it.
    WithKeeper(File, Keeper),
    /// Elsewhere and unnamed, for targets that cannot be replaced.
    Unnamed(File),
}

impl Temporary {
    fn new(target: &Target) -> io::Result<Self> {
        Ok(match target.delivery {
            Delivery::Replaced => Self::Named(target.temporary()?),
            Delivery::Direct | Delivery::Stream(_) => {
                Self::Unnamed(tempfile::tempfile().map_err(without_path)?)
            }
        })
    }
}

impl PendingResult {
    /// Begins a result for `path`.
    pub fn new(path: &Path) -> io::Result<Self> {
        let target = Target::unchecked(path)?;
        let file = Temporary::new(&target)?;
        Ok(Self { path: target.path, delivery: target.delivery, file })
    }

    /// Returns the file to write the result to.
    pub fn out(&mut self) -> &mut File {
        match &mut self.file {
            Temporary::Named(file) => file.as_file_mut(),
            Temporary::WithKeeper(file, _) | Temporary::Unnamed(file) => file,
        }
    }

    /// Delivers the complete result to the target.
    pub fn commit(self) -> io::Result<()> {
        let Self { path, delivery, file } = self;
        let mut file = match file {
            Temporary::Named(file) => {
                file.as_file().sync_all()?;
                file.persist(&path)?;
                keeper::sync_name(&path);
                return Ok(());
            }
            Temporary::WithKeeper(file, keeper) => {
                file.sync_all()?;
                return keeper.commit();
            }
            Temporary::Unnamed(file) => file,
        };
        file.rewind()?;
        match delivery {
            Delivery::Stream(mut stream) => io::copy(&mut file, &mut stream).map(drop),
            Delivery::Direct | Delivery::Replaced => {
                let out = open_for_writing(&path)?;
                io::copy(&mut file, &mut Special(&out)).map(drop)
            }
        }
    }
}

/// A target that is written to directly. A write gives up on a stalled reader after a signal.
struct Special<'a>(&'a File);

impl Write for Special<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stop = signals::caught();
        streams::write_to(self.0.as_fd(), bytes, stop.as_ref()).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a target that is written to directly. For a named pipe, waits until it has a reader or a
/// signal asks the program to end.
fn open_for_writing(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    loop {
        let mut options = File::options();
        let opened = options.write(true).truncate(true).custom_flags(nonblocking).open(path);
        match opened {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                if signals::first().is_some() {
                    return Err(ErrorKind::TimedOut.into());
                }
                thread::sleep(POLL_INTERVAL);
            }
            opened => return opened,
        }
    }
}

fn delivery_for(path: &Path) -> io::Result<Delivery> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        // A dangling link is replaced like a file.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Delivery::Replaced),
        Err(error) => return Err(error),
    };
    let is_same_file = |fd: BorrowedFd<'_>| {
        fstat(fd).is_ok_and(|stat| stat.st_dev == metadata.dev() && stat.st_ino == metadata.ino())
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if is_same_file(stdio::stdout()) && !kind.is_char_device() {
        return Ok(Delivery::Stream(streams::Stream::Stdout));
    }
    if is_same_file(stdio::stderr()) && !kind.is_char_device() {
        return Ok(Delivery::Stream(streams::Stream::Stderr));
    }
    access(path, Access::WRITE_OK)?;
    // A regular file named by descriptor number is written to directly.
    let is_descriptor = fs::canonicalize(folder(path)).is_ok_and(|dir| dir.starts_with("/proc"));
    if kind.is_file() && !is_descriptor {
        Ok(Delivery::Replaced)
    } else if kind.is_socket() {
        Err(Errno::NXIO.into())
    } else {
        Ok(Delivery::Direct)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn failed_writes_keep_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let target = Target::new(&path).unwrap();
        let failed = target.write(|out| {
            out.write_all(b"half of the new")?;
            Err(ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        target.write(|out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file is left");
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        for name in ["link", "dangling"] {
            let path = dir.path().join(name);
            let to = if name == "link" { victim.clone() } else { dir.path().join("nowhere") };
            symlink(to, &path).unwrap();
            write(&path, b"result").unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(fs::read(&path).unwrap(), b"result");
        }
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn special_files_are_written_directly() {
        let dir = tempfile::tempdir().unwrap();
        write(Path::new("/dev/null"), b"gone").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let error = write(Path::new("/dev/full"), b"gone").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let target = Target::new(&pipe).unwrap();
        let (path, text) = (pipe.clone(), vec![7; 300_000]);
        let reader = thread::spawn(move || fs::read(path).unwrap());
        target.write(|out| out.write_all(&text)).unwrap();
        assert_eq!(reader.join().unwrap(), text);
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn unwritable_targets_fail_early() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Target::new(dir.path()).is_err());
        let missing = Target::new(&dir.path().join("no/such")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "No such file or directory (os error 2)",
            "callers name it"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
