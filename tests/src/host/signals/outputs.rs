//! Destinations of output, and their failures.

use std::{fs::File, os::fd::OwnedFd};

use rustix::{
    fs::OFlags,
    mount::{MountFlags, UnmountFlags, mount, unmount},
    pipe::{PipeFlags, pipe, pipe_with},
};

use crate::{facts::need_root, prelude::*};

/// The product's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A terminal, which is also its input.
    Tty,
    File,
    /// A file on a full disk.
    FullDisk,
    /// A pipe without a reader.
    ClosedPipe,
    /// A pipe whose reader has stalled; errors go to it too.
    StalledPipe,
}

impl Output {
    pub const ALL: [Self; 5] =
        [Self::Tty, Self::File, Self::FullDisk, Self::ClosedPipe, Self::StalledPipe];

    /// Returns the product's descriptor, and a descriptor to keep open while it runs.
    pub fn open(self, folder: &Path, disk: &Disk) -> anyhow::Result<(OwnedFd, Option<OwnedFd>)> {
        Ok(match self {
            Self::Tty | Self::File => (File::create(folder.join("out"))?.into(), None),
            Self::FullDisk => (disk.file()?.into(), None),
            Self::ClosedPipe => (pipe()?.1, None),
            Self::StalledPipe => {
                let (read, write) = pipe_with(PipeFlags::NONBLOCK)?;
                while rustix::io::write(&write, &[0; 4096]).is_ok() {}
                rustix::fs::fcntl_setfl(&write, OFlags::empty())?;
                (write, Some(read))
            }
        })
    }
}

/// A small disk without room, and a file on it.
#[derive(Debug)]
pub struct Disk(TempDir);

impl Disk {
    /// The contents of the old file.
    pub const OLD: &str = "old\n";

    /// Mounts and fills a disk, or skips the test.
    pub fn mount() -> anyhow::Result<Self> {
        need_root()?;
        let folder = files::scratch()?;
        let size = c"size=16k";
        if let Err(error) = mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), size) {
            return skip(format!("mounting is not allowed here ({error})"));
        }
        let disk = Self(folder);
        fs::write(disk.old(), Self::OLD)?;
        // Fills the disk until writing fails.
        let filled = (0..64)
            .try_for_each(|page| fs::write(disk.0.path().join(format!("fill{page}")), [0; 4096]));
        filled.err().context("the disk takes all that is written")?;
        Ok(disk)
    }

    /// Returns the path of a file from before the disk was full.
    pub fn old(&self) -> PathBuf {
        self.0.path().join("old")
    }

    /// An empty file: the disk has room only for its name.
    fn file(&self) -> anyhow::Result<File> {
        let options = File::options().append(true).create(true).clone();
        options.open(self.0.path().join("out")).context("no file on the full disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}
