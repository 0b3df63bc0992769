//! The window of a benchmark: our kernel reads its counters at the window's beginning and end, and
//! notifies the VMM of both.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
};

/// The file that takes the announcements; a read returns the counts within all windows.
pub const FILE: &str = "/sys/kernel/debug/pvticket/window";

/// Announces the steps of a benchmark. Does nothing on a kernel without the file.
#[derive(Debug)]
pub struct Window(Option<File>);

impl Window {
    /// Opens [`FILE`], if the kernel has it.
    pub fn open() -> Self {
        Self(OpenOptions::new().write(true).open(FILE).ok())
    }

    /// Writes the announcements to `file`.
    #[cfg(test)]
    pub fn to(file: File) -> Self {
        Self(Some(file))
    }

    /// Announces that all workers are ready. Returns when the VMM's other machines are ready, too.
    pub fn ready(&mut self) -> io::Result<()> {
        self.announce(b"ready")
    }

    /// The window begins: earlier operations do not count.
    pub fn begins(&mut self) -> io::Result<()> {
        self.announce(b"begins")
    }

    /// The window ends: later operations do not count.
    pub fn ends(&mut self) -> io::Result<()> {
        self.announce(b"ends")
    }

    /// Returns when no other machine is being measured; until then the workers continue.
    pub fn leave(&mut self) -> io::Result<()> {
        self.announce(b"leave")
    }

    fn announce(&mut self, word: &[u8]) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |file| file.write_all(word))
    }
}
