//! A process that renames the result of a confined process, which cannot open directories.
//!
//! Landlock's rights to a directory apply to everything below it: the right to rename a file includes the
//! right to remove any file there. So a confined process has only an open temporary file. `pvticket keep`,
//! started with both names before the confinement, renames the complete file or removes it.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use base::files;
use rustix::io::Errno;

/// Name of the subcommand.
pub const COMMAND: &str = "keep";

/// The file of this program, even if its path has been reused for another file.
const PROGRAM: &str = "/proc/self/exe";

/// Sent to the process when the result is complete.
const COMPLETE: u8 = b'c';

/// The process of one result. Dropping it removes the temporary file.
#[derive(Debug)]
pub struct Keeper(Child);

impl Keeper {
    /// Starts the process for a temporary file that is to become `target`.
    pub fn start(temporary: &Path, target: &Path) -> io::Result<Self> {
        let mut command = Command::new(PROGRAM);
        command.arg0("pvticket").arg(COMMAND).arg("--").args([temporary, target]);
        // In a separate process group, so that Ctrl-C does not end it before the file is removed.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null()).spawn().map(Self)
    }

    /// Renames the result, which must be complete and on disk.
    pub fn commit(mut self) -> io::Result<()> {
        let exited = || io::Error::new(ErrorKind::BrokenPipe, "the process that renames it exited");
        let mut pipes = self.0.stdin.take().zip(self.0.stdout.take());
        let (input, output) = pipes.as_mut().ok_or_else(exited)?;
        input.write_all(&[COMPLETE])?;
        let mut answer = String::new();
        output.read_to_string(&mut answer)?;
        match answer.trim().parse() {
            Ok(0) => Ok(()),
            Ok(code) => Err(io::Error::from_raw_os_error(code)),
            Err(_) => Err(exited()),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The keeper exits at once and leaves nothing behind.
        let _ = self.0.wait();
    }
}

/// Syncs the directory entry of a file. Errors are ignored: some file systems cannot sync directories.
pub fn sync_name(file: &Path) {
    let _ = File::open(files::folder(file)).and_then(|folder| folder.sync_all());
}

/// Runs the process: `COMPLETE` on `orders` confirms that the result is complete; `answer` then receives errno or 0.
pub fn keep(
    temporary: &Path,
    target: &Path,
    mut orders: impl Read,
    mut answer: impl Write,
) -> io::Result<()> {
    let mut order = [0];
    let is_complete = orders.read_exact(&mut order).is_ok() && order == [COMPLETE];
    let renamed = if is_complete { fs::rename(temporary, target) } else { Ok(()) };
    if !is_complete || renamed.is_err() {
        // Another process may have removed the file.
        let _ = fs::remove_file(temporary);
    }
    if !is_complete {
        return Ok(());
    }
    sync_name(target);
    let unknown = Errno::IO.raw_os_error();
    let code = renamed.err().map_or(0, |error| error.raw_os_error().unwrap_or(unknown));
    writeln!(answer, "{code}")?;
    answer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the target's contents afterwards, whether a temporary file is left, and the answer.
    fn after(orders: &[u8], target: &str) -> (Option<String>, bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let [temporary, target] = [".new", target].map(|name| folder.path().join(name));
        fs::write(&temporary, "new").unwrap();
        fs::write(folder.path().join("old"), "old").unwrap();
        let mut answer = Vec::new();
        keep(&temporary, &target, orders, &mut answer).unwrap();
        let is_left = temporary.exists();
        (fs::read_to_string(target).ok(), is_left, String::from_utf8(answer).unwrap())
    }

    #[test]
    fn renames_only_complete_results() {
        assert_eq!(after(b"c", "old"), (Some("new".into()), false, "0\n".into()));
        assert_eq!(after(b"", "old"), (Some("old".into()), false, String::new()), "it was dropped");
        let nowhere = Errno::NOENT.raw_os_error();
        assert_eq!(after(b"c", "no/such"), (None, false, format!("{nowhere}\n")));
    }
}
