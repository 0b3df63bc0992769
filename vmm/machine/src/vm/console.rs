//! Where a machine's input comes from and its output goes.

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

use crate::devices::{bench::Bench, channel::Closing, output::Sink};

/// What receives the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputTarget {
    /// The guest's console, COM1, from the start: for guests with an init of their own.
    Console,
    /// The guest's console, once its shell is ready: earlier bytes would be flushed when the guest
    /// opens its terminal.
    Shell,
    /// The stdin of the command that runs in the guest.
    Command,
}

/// A source of input.
#[derive(Debug)]
pub enum InputSource {
    /// A file, and the process's part in reading it.
    File(File, Box<dyn InputOwner>),
    /// There is none: it is at its end.
    AtEnd,
}

/// What the process that has the machine knows of its input beyond the bytes. The machine's event loop
/// calls it, before it reads and when it cannot.
pub trait InputOwner: fmt::Debug + Send {
    /// May the input be read now? Not while another job has the terminal.
    fn is_ours(&self) -> bool;

    /// The input cannot be read any more. For the guest this is its end.
    fn failed(&self, error: io::Error);
}

/// What happens when output cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The loss ends the machine.
    Fails,
    /// The loss is ignored: the output is for humans, who may have closed it.
    IsNothing,
}

impl Loss {
    /// What becomes of an attempt to write these bytes.
    fn of(self, bytes: &[u8], written: io::Result<usize>) -> io::Result<usize> {
        match self {
            Self::Fails => written,
            Self::IsNothing => Ok(written.unwrap_or(bytes.len())),
        }
    }
}

/// Output to a descriptor, usually a copy of 1 or 2, unbuffered. A vCPU's thread blocks there for a
/// slow reader, but not beyond the machine's end.
#[derive(Debug)]
pub struct Outlet {
    fd: OwnedFd,
    closing: Closing,
    loss: Loss,
}

/// Bytes that a pipe accepts at once if it accepts any (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Pause when a descriptor polls as writable but is not.
const PAUSE: Duration = Duration::from_millis(1);

/// Held from the poll for room to the write: all outputs may be the same pipe.
static TURN: Mutex<()> = Mutex::new(());

impl Outlet {
    /// Output to `fd`, until `closing` reports that the machine ends.
    pub fn new(fd: impl AsFd, closing: &Closing, loss: Loss) -> io::Result<Self> {
        Ok(Self { fd: fd.as_fd().try_clone_to_owned()?, closing: closing.clone(), loss })
    }

    /// Writes some of the bytes; None if the descriptor accepts none now.
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
                // Another process set O_NONBLOCK, and another writer was faster.
                Err(Errno::AGAIN) => {
                    thread::sleep(PAUSE);
                    self.wait()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes as many of the bytes as the descriptor accepts at once. (Of a terminal or a socket that
    /// polls as writable, the last write may wait.)
    fn write_ready(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.try_write(&bytes[done..]) {
                Ok(Some(count)) => done += count,
                Ok(None) | Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    /// Blocks until the descriptor accepts more, or the machine ends.
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
        self.loss.of(bytes, written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Outlet {
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.write_ready(bytes);
        self.loss.of(bytes, written)
    }
}

/// A machine's connections to the outside.
pub struct Console {
    /// Input; None: nobody is told that there is none.
    pub input: Option<InputSource>,
    /// What receives the input.
    pub target: InputTarget,
    /// Is the input a terminal in raw mode, so that the VMM handles escape keys?
    pub raw_keys: bool,
    /// What the guest's console prints.
    pub com1: Box<dyn Sink>,
    /// The command's stdout.
    pub stdout: Box<dyn Sink>,
    /// The command's stderr.
    pub stderr: Box<dyn Sink>,
    /// Becomes readable when the host wants the machine to end.
    pub interrupt: Option<OwnedFd>,
    /// Told when the machine ends, if its output may block for readers.
    pub closing: Option<Closing>,
    /// Receives the steps of the guest's benchmark.
    pub bench: Option<Arc<dyn Bench>>,
}

impl Console {
    /// No input, all output discarded.
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
