//! The window of a benchmark: our kernel reads its counters at both of its moments, and tells the
//! VMM of them.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
};

/// What takes the words, and says what was counted.
pub const FILE: &str = "/sys/kernel/debug/pvticket/window";

/// Where the steps of a benchmark are announced. On a kernel that does not take them, nowhere.
#[derive(Debug)]
pub struct Window(Option<File>);

impl Window {
    /// That of this kernel.
    pub fn open() -> Self {
        Self(OpenOptions::new().write(true).open(FILE).ok())
    }

    /// All workers are ready. Comes back when those of the VMM's other machines are, too.
    pub fn ready(&mut self) -> io::Result<()> {
        self.say(b"ready")
    }

    /// The operations until now do not count.
    pub fn begins(&mut self) -> io::Result<()> {
        self.say(b"begins")
    }

    /// Nor do those from now on.
    pub fn ends(&mut self) -> io::Result<()> {
        self.say(b"ends")
    }

    /// Comes back when no other machine is measured any more; until then the workers go on.
    pub fn leave(&mut self) -> io::Result<()> {
        self.say(b"leave")
    }

    fn say(&mut self, word: &[u8]) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |file| file.write_all(word))
    }
}
