//! Where a machine's input comes from and its output goes.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
};

/// Who reads the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputTarget {
    /// The guest's console, COM1, at once: a guest with an init of its own.
    Console,
    /// The same once its shell is ready: earlier bytes would be flushed when the
    /// guest opens its terminal.
    Shell,
    /// The stdin of the command that runs in the guest.
    Command,
}

/// A source of input, usually a copy of descriptor 0.
#[derive(Debug)]
pub struct Input {
    file: File,
}

impl Input {
    /// Input from this descriptor.
    pub fn new(fd: OwnedFd) -> Self {
        Self { file: fd.into() }
    }

    /// The process's stdin; None when it is closed.
    pub fn stdin() -> Option<Self> {
        io::stdin().as_fd().try_clone_to_owned().ok().map(Self::new)
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl AsRawFd for Input {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A machine's connections to the outside.
pub struct Console {
    /// Input, if any.
    pub input: Option<Input>,
    /// Who reads it.
    pub target: InputTarget,
    /// Is the input a terminal in raw mode, whose escape keys are ours?
    pub raw_keys: bool,
    /// What the guest's console prints.
    pub com1: Box<dyn Write + Send>,
    /// The command's stdout.
    pub stdout: Box<dyn Write + Send>,
    /// The command's stderr.
    pub stderr: Box<dyn Write + Send>,
    /// Becomes readable when the host wants the machine to end.
    pub interrupt: Option<OwnedFd>,
}

impl Console {
    /// No input, all output dropped.
    pub fn null() -> Self {
        Self {
            input: None,
            target: InputTarget::Console,
            raw_keys: false,
            com1: Box::new(io::sink()),
            stdout: Box::new(io::sink()),
            stderr: Box::new(io::sink()),
            interrupt: None,
        }
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("input", &self.input)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
