//! Where a machine's input comes from and its output goes.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::machine::{bench::Bench, channel::Closing};

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

/// What becomes of what cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It ends the machine.
    Fails,
    /// Nothing: it is for people, who may have closed it.
    IsNothing,
}

/// Output to a descriptor, usually a copy of 1 or 2, unbuffered. The thread of a vCPU waits there
/// for a slow reader, but not once the machine ends.
#[derive(Debug)]
pub struct Outlet {
    fd: OwnedFd,
    closing: Closing,
    loss: Loss,
}

/// Bytes that a pipe takes at once if it takes any (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Pause where a descriptor says that it takes more, and does not.
const PAUSE: Duration = Duration::from_millis(1);

/// Between the look whether a descriptor takes more and the write: all of them may be one pipe.
static TURN: Mutex<()> = Mutex::new(());

impl Outlet {
    /// Output to `fd`, until `closing` says that the machine ends.
    pub fn new(fd: impl AsFd, closing: &Closing, loss: Loss) -> io::Result<Self> {
        Ok(Self { fd: fd.as_fd().try_clone_to_owned()?, closing: closing.clone(), loss })
    }

    /// Some of the bytes, if it takes any now.
    fn try_write(&self, bytes: &[u8]) -> Result<Option<usize>, Errno> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        if poll(&mut fds, Some(&Timespec::default()))? == 0 {
            return Ok(None);
        }
        rustix::io::write(&self.fd, &bytes[..bytes.len().min(PIECE)]).map(Some)
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.try_write(bytes) {
                Ok(Some(count)) => return Ok(count),
                Ok(None) => self.wait()?,
                Err(Errno::INTR) => {}
                // Another's O_NONBLOCK, and another who was quicker.
                Err(Errno::AGAIN) => {
                    thread::sleep(PAUSE);
                    self.wait()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Until it takes more, or the machine ends.
    fn wait(&self) -> io::Result<()> {
        let mut fds = [
            PollFd::new(&self.fd, PollFlags::OUT),
            PollFd::from_borrowed_fd(self.closing.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => Err(ErrorKind::ConnectionAborted.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.write_some(bytes);
        match self.loss {
            Loss::Fails => written,
            Loss::IsNothing => Ok(written.unwrap_or(bytes.len())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    /// Told that the machine ends, if its output waits for readers.
    pub closing: Option<Closing>,
    /// Takes note of the guest's benchmark.
    pub bench: Option<Arc<dyn Bench>>,
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
            closing: None,
            bench: None,
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
