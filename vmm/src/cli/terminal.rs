//! The user's terminal: raw mode while a guest has it, signals as a descriptor.

use std::{
    io::{self, IsTerminal, Stdin},
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    low_level::pipe,
};

/// Holds the terminal in raw mode; dropping it restores what was there. Every
/// way out of a run drops it: signals end the machine, not the process.
#[derive(Debug)]
pub struct RawTerminal {
    stdin: Stdin,
    saved: Termios,
}

impl RawTerminal {
    /// Raw mode, if stdin is a terminal.
    pub fn enter() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let saved = tcgetattr(&stdin)?;
        let mut raw = saved.clone();
        raw.make_raw();
        // The guest's terminal driver already sends CR LF; output processing of
        // ours stays on for our own messages.
        raw.output_modes = saved.output_modes;
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Some(Self { stdin, saved }))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone away.
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.saved);
    }
}

/// A descriptor that becomes readable at SIGINT, SIGTERM or SIGHUP, which from
/// now on do nothing else.
pub fn interrupt_descriptor() -> io::Result<OwnedFd> {
    let (read, write) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, write.try_clone()?)?;
    }
    Ok(read.into())
}
