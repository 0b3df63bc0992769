//! A machine's input and output.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::devices::{bench::Bench, channel::EndSignal, output::Sink};

/// The receiver of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputTarget {
    /// The guest's console, COM1, from the start. For guests with their own init.
    Console,
    /// The guest's console, once its shell is ready. Earlier bytes would be flushed when the guest
    /// opens its terminal.
    Shell,
    /// The stdin of the command that runs in the guest.
    Command,
}

/// A source of input.
#[derive(Debug)]
pub enum InputSource {
    /// A file, and its owner in this process.
    File(File, Box<dyn InputOwner>),
    /// Empty input: at end of file from the start.
    AtEnd,
}

/// State of the input that only the process running the machine knows. The machine's event loop
/// queries it before each read, and reports a failed read to it.
pub trait InputOwner: fmt::Debug + Send {
    /// Whether the input may be read now, i.e. no other job has the terminal.
    fn is_readable(&self) -> bool;

    /// Reports that the input has failed. The guest sees end of file.
    fn failed(&self, error: io::Error);
}

/// The handling of output that cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnWriteError {
    /// A failed write ends the machine.
    EndMachine,
    /// Failures are ignored: people read the output and may have closed it.
    Ignore,
}

impl OnWriteError {
    /// Returns the result to report for an attempt to write these bytes.
    fn apply(self, bytes: &[u8], written: io::Result<usize>) -> io::Result<usize> {
        match self {
            Self::EndMachine => written,
            Self::Ignore => Ok(written.unwrap_or(bytes.len())),
        }
    }
}

/// Unbuffered output to a descriptor, usually a duplicate of 1 or 2. A vCPU's thread blocks on a slow
/// reader, but not beyond the end of the machine.
#[derive(Debug)]
pub struct FdOutput {
    fd: OwnedFd,
    end_signal: EndSignal,
    on_error: OnWriteError,
}

/// Number of bytes that a pipe accepts at once if it accepts any (`PIPE_BUF`).
const MAX_WRITE: usize = 4096;

/// Pause if a descriptor polls as writable but is not.
const PAUSE: Duration = Duration::from_millis(1);

/// Held from the poll for room to the write, because all outputs may be the same pipe.
static WRITE_LOCK: Mutex<()> = Mutex::new(());

impl FdOutput {
    /// Creates an output to `fd`. Writes may block until `end_signal` reports the end of the machine.
    pub fn new(fd: impl AsFd, end_signal: &EndSignal, on_error: OnWriteError) -> io::Result<Self> {
        Ok(Self { fd: fd.as_fd().try_clone_to_owned()?, end_signal: end_signal.clone(), on_error })
    }

    /// Writes some of the bytes, or returns None if the descriptor accepts none now.
    fn try_write(&self, bytes: &[u8]) -> Result<Option<usize>, Errno> {
        let _lock = WRITE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        if poll(&mut fds, Some(&Timespec::default()))? == 0 {
            return Ok(None);
        }
        rustix::io::write(&self.fd, &bytes[..bytes.len().min(MAX_WRITE)]).map(Some)
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.try_write(bytes) {
                Ok(Some(count)) => return Ok(count),
                Ok(None) => self.wait()?,
                Err(Errno::INTR) => {}
                // Another process has set O_NONBLOCK, and another writer was faster.
                Err(Errno::AGAIN) => {
                    thread::sleep(PAUSE);
                    self.wait()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes as many bytes as the descriptor accepts at once. (The last write may block for a
    /// terminal or a socket that polls as writable.)
    fn write_ready(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match self.try_write(&bytes[written..]) {
                Ok(Some(count)) => written += count,
                Ok(None) | Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(written)
    }

    /// Blocks until the descriptor accepts more. Fails if the machine ends.
    fn wait(&self) -> io::Result<()> {
        let mut fds = [
            PollFd::new(&self.fd, PollFlags::OUT),
            PollFd::from_borrowed_fd(self.end_signal.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => Err(ErrorKind::ConnectionAborted.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Write for FdOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.write_some(bytes);
        self.on_error.apply(bytes, written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for FdOutput {
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.write_ready(bytes);
        self.on_error.apply(bytes, written)
    }
}

/// A machine's connections to the outside.
pub struct Console {
    /// The input. None means that not even end of file is delivered.
    pub input: Option<InputSource>,
    /// The receiver of the input.
    pub target: InputTarget,
    /// Whether the input is a terminal in raw mode, so that the VMM handles escape keys.
    pub raw_keys: bool,
    /// Output of the guest's console.
    pub com1: Box<dyn Sink>,
    /// The command's stdout.
    pub stdout: Box<dyn Sink>,
    /// The command's stderr.
    pub stderr: Box<dyn Sink>,
    /// Becomes readable when the host requests the end of the machine.
    pub interrupt: Option<OwnedFd>,
    /// Signalled when the machine ends. Required if its outputs may block.
    pub end_signal: Option<EndSignal>,
    /// Receives the steps of the guest's benchmark.
    pub bench: Option<Arc<dyn Bench>>,
}

impl Console {
    /// Returns a console without input that discards all output.
    pub fn null() -> Self {
        Self {
            input: None,
            target: InputTarget::Console,
            raw_keys: false,
            com1: Box::new(io::sink()),
            stdout: Box::new(io::sink()),
            stderr: Box::new(io::sink()),
            interrupt: None,
            end_signal: None,
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
