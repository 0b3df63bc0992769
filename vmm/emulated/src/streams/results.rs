//! Result files appear under their names complete or not at all.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use base::units::ByteSize;
use os::results::PendingResult;

/// A result file that the command did not produce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Expected path on this host.
    pub host: PathBuf,
    /// The reason.
    pub reason: String,
}

/// The result files of one session.
#[derive(Debug)]
pub struct ResultFiles {
    files: Vec<Partial>,
    /// Number of bytes still accepted.
    remaining: u64,
}

#[derive(Debug)]
struct Partial {
    host: PathBuf,
    file: Option<PendingResult>,
    complete: bool,
    error: Option<String>,
}

impl ResultFiles {
    /// Expects these files, with at most `limit` bytes in total: they are in the machine's memory.
    pub fn expect<'a>(hosts: impl Iterator<Item = &'a Path>, limit: ByteSize) -> Self {
        Self { files: hosts.map(Partial::new).collect(), remaining: limit.0 }
    }

    /// Appends bytes to file `index`.
    pub fn piece(&mut self, index: u32, bytes: &[u8]) -> io::Result<()> {
        let remaining = self.remaining.checked_sub(bytes.len() as u64);
        self.remaining = remaining
            .ok_or_else(|| io::Error::other("the results are larger than the machine's memory"))?;
        let partial = self.file(index)?;
        partial.open()?.out().write_all(bytes)
    }

    /// Marks file `index` as complete.
    pub fn end(&mut self, index: u32) -> io::Result<()> {
        let partial = self.file(index)?;
        partial.open()?;
        partial.complete = true;
        Ok(())
    }

    /// Records that file `index` cannot be read.
    pub fn failed(&mut self, index: u32, error: String) -> io::Result<()> {
        self.file(index)?.error = Some(error);
        Ok(())
    }

    /// Renames the complete files to their final names. Returns the missing files.
    pub fn commit(mut self) -> io::Result<Vec<Missing>> {
        let mut missing = Vec::new();
        for partial in &mut self.files {
            if let Some(file) = partial.file.take_if(|_| partial.complete) {
                file.commit().map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", partial.host.display()))
                })?;
                continue;
            }
            let reason = partial.error.take().unwrap_or_else(|| "it was not returned".into());
            missing.push(Missing { host: partial.host.clone(), reason });
        }
        Ok(missing)
    }

    fn file(&mut self, index: u32) -> io::Result<&mut Partial> {
        self.files
            .get_mut(index as usize)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an unexpected result file"))
    }
}

impl Partial {
    fn new(host: &Path) -> Self {
        Self { host: host.into(), file: None, complete: false, error: None }
    }

    fn open(&mut self) -> io::Result<&mut PendingResult> {
        let file = match self.file.take() {
            Some(file) => file,
            None => PendingResult::new(&self.host)?,
        };
        Ok(self.file.insert(file))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_appear_complete_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = ["whole", "empty", "half", "failed"].map(|name| folder.path().join(name));
        let mut results = ResultFiles::expect(hosts.iter().map(PathBuf::as_path), ByteSize(4));
        results.piece(0, b"ab").unwrap();
        results.piece(2, b"x").unwrap();
        results.piece(0, b"c").unwrap();
        assert!(results.piece(0, b"d").is_err(), "no more than were to come");
        results.end(0).unwrap();
        results.end(1).unwrap();
        results.failed(3, "no such file".into()).unwrap();
        assert!(results.piece(4, b"").is_err());
        let missing = results.commit().unwrap();
        assert_eq!(fs::read(&hosts[0]).unwrap(), b"abc");
        assert_eq!(fs::read(&hosts[1]).unwrap(), b"");
        let names: Vec<_> = missing.iter().map(|missing| missing.host.clone()).collect();
        assert_eq!(names, hosts[2..]);
        assert_eq!(missing[1].reason, "no such file");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no partial file is left");
    }
}
