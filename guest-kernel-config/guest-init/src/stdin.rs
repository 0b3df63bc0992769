//! The command's standard input, copied from the VMM's port to a pipe.

use hypercalls::ports::{GuestEvent, STDIN_EOF};
use rustix::{
    event::{PollFd, PollFlags},
    fd::OwnedFd,
    fs::{self, Mode, OFlags},
    io::Errno,
    termios::{OptionalActions, tcgetattr, tcsetattr},
};

use crate::machine::{Platform, Ports};

/// Polling interval in ms if there is no serial line for wakeups.
const POLL_INTERVAL_MS: i64 = 10;

const CHUNK: usize = 4096;

/// A state machine, driven by [`poll_fds`](Stdin::poll_fds) and [`handle`](Stdin::handle).
pub struct Stdin {
    /// The write end of the command's stdin; `None` after the end of input or the reader's close.
    pipe: Option<OwnedFd>,
    /// The serial line on which the VMM announces input; opened when first needed.
    wake: Option<OwnedFd>,
    chunk: [u8; CHUNK],
    /// The part of `chunk` that has not been written to the pipe yet.
    pending: core::ops::Range<usize>,
    waiting: bool,
}

impl Stdin {
    /// Takes the write end of the command's stdin, non-blocking.
    pub fn new(pipe: OwnedFd) -> Self {
        Self { pipe: Some(pipe), wake: None, chunk: [0; CHUNK], pending: 0..0, waiting: false }
    }

    /// Copies as much as possible without blocking.
    pub fn pump(&mut self, machine: &Platform, ports: &Ports) {
        while let Some(pipe) = &self.pipe {
            if !self.pending.is_empty() {
                match rustix::io::write(pipe, &self.chunk[self.pending.clone()]) {
                    Ok(count) => self.pending.start += count,
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return,
                    // The command has closed its stdin.
                    Err(_) => self.pipe = None,
                }
                continue;
            }
            match ports.stdin_ready() {
                STDIN_EOF => self.pipe = None,
                0 => return self.request_wakeup(machine),
                count => {
                    let count = CHUNK.min(count as usize);
                    ports.read_stdin(&mut self.chunk[..count]);
                    self.pending = 0..count;
                }
            }
        }
    }

    /// Requests a wakeup from the VMM. Opens the line first, because opening it discards received
    /// bytes.
    fn request_wakeup(&mut self, machine: &Platform) {
        self.waiting = true;
        if self.wake.is_none() {
            self.wake = open_wake_line();
        }
        machine.event(GuestEvent::StdinWanted);
    }

    /// The events to poll: room in the pipe, and the wake byte.
    pub fn poll_fds(&self) -> [Option<PollFd<'_>>; 2] {
        let room = if self.pending.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let pipe = self.pipe.as_ref().map(|pipe| PollFd::new(pipe, room));
        let wake = self.wake.as_ref().filter(|_| self.waiting && self.pipe.is_some());
        [pipe, wake.map(|wake| PollFd::new(wake, PollFlags::IN))]
    }

    /// The poll timeout in ms; `None`: no limit.
    pub fn timeout_ms(&self) -> Option<i64> {
        (self.pipe.is_some() && self.waiting && self.wake.is_none()).then_some(POLL_INTERVAL_MS)
    }

    /// Handles the results of polling [`poll_fds`](Self::poll_fds).
    pub fn handle(&mut self, pipe: PollFlags, wake: PollFlags, machine: &Platform, ports: &Ports) {
        if pipe.contains(PollFlags::ERR) {
            self.pipe = None;
        }
        if self.waiting {
            if !wake.is_empty() {
                self.drain_wake_line();
            } else if self.wake.is_some() {
                return;
            }
            self.waiting = false;
        }
        self.pump(machine, ports);
    }

    fn drain_wake_line(&mut self) {
        let Some(wake) = &self.wake else { return };
        let mut bytes = [0; 16];
        match rustix::io::read(wake, &mut bytes) {
            Ok(0) => self.wake = None,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            // A line that cannot be read must not be polled forever.
            Err(_) => self.wake = None,
        }
    }
}

/// Opens COM2 in raw mode: no echo, no line editing, no waiting for a carrier.
fn open_wake_line() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let line = fs::open(c"/dev/ttyS1", flags, Mode::empty()).ok()?;
    let mut settings = tcgetattr(&line).ok()?;
    settings.make_raw();
    tcsetattr(&line, OptionalActions::Now, &settings).ok()?;
    Some(line)
}
