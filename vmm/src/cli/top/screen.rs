//! The terminal of the live view: alternate screen, raw mode.

use std::{io, os::fd::BorrowedFd};

use rustix::{io::Errno, stdio, termios::tcgetwinsize};

use os::{
    streams::{self, Stream},
    terminal::{self, Hold, RawTerminal},
};
use report::top::Size;

/// Moves the cursor to the first line (xterm's control sequences).
const HOME: &str = "\x1b[H";
/// Clears the rest of the line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears everything below.
const CLEAR_BELOW: &str = "\x1b[J";

/// The size if the terminal does not report one.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// Commands by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Quit the view.
    Quit,
    /// Ctrl-C.
    Interrupt,
    /// Pause or resume.
    Pause,
    /// Stop the run.
    Stop,
    /// A key without a meaning.
    Other,
}

impl Key {
    fn of(byte: u8) -> Self {
        match byte {
            b'q' | b'Q' => Self::Quit,
            // In raw mode Ctrl-C is a byte, not a signal.
            0x03 => Self::Interrupt,
            b'p' | b'P' => Self::Pause,
            b's' | b'S' => Self::Stop,
            _ => Self::Other,
        }
    }
}

/// The terminal; restored when dropped.
#[derive(Debug)]
pub(super) struct TerminalScreen {
    _raw: Option<RawTerminal>,
}

impl TerminalScreen {
    pub(super) fn enter() -> io::Result<Self> {
        Ok(Self { _raw: RawTerminal::enter(Hold::Screen)? })
    }

    pub(super) fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { columns: size.ws_col.into(), rows: size.ws_row.into() }
            }
            _ => USUAL,
        }
    }

    /// Shows nothing while another job has the terminal.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        if !terminal::is_ours() {
            return Ok(());
        }
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}{CLEAR_LINE}")).collect();
        write(&format!("{HOME}{}{CLEAR_BELOW}", lines.join("\r\n")))
    }

    /// What is readable when a key has been pressed; while another job has the terminal, `signals`.
    pub(super) fn keyboard<'a>(&self, signals: BorrowedFd<'a>) -> BorrowedFd<'a> {
        if terminal::is_ours() { stdio::stdin() } else { signals }
    }

    /// The keys pressed since the last call; `Quit` if the terminal is gone.
    pub(super) fn keys(&self) -> io::Result<Vec<Key>> {
        let mut bytes = [0; 64];
        match rustix::io::read(stdio::stdin(), &mut bytes) {
            Ok(0) => Ok(vec![Key::Quit]),
            Ok(count) => Ok(bytes[..count].iter().map(|byte| Key::of(*byte)).collect()),
            Err(Errno::IO) if !terminal::is_ours() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    streams::write(Stream::Stdout, text.as_bytes())
}
