//! The terminal while somebody watches: its other screen, in raw mode.

use std::io;

use rustix::termios::tcgetwinsize;

use crate::{
    report::top::Size,
    streams::{self, Stream},
    terminal::{Hold, RawTerminal},
};

/// To the first line (xterm's control sequences).
const HOME: &str = "\x1b[H";
/// Clears the rest of the line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears what is below.
const CLEAR_BELOW: &str = "\x1b[J";

/// Of a terminal that does not know.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Leave.
    Quit,
    /// Ctrl-C.
    Interrupt,
    /// Pause or go on.
    Pause,
    /// Stop the run.
    Stop,
    /// Nothing.
    Other,
}

impl Key {
    fn of(byte: u8) -> Self {
        match byte {
            b'q' | b'Q' => Self::Quit,
            // In raw mode it is a key like others.
            0x03 => Self::Interrupt,
            b'p' | b'P' => Self::Pause,
            b's' | b'S' => Self::Stop,
            _ => Self::Other,
        }
    }
}

/// The terminal; dropped, it is as it was.
#[derive(Debug)]
pub(super) struct Screen {
    _raw: Option<RawTerminal>,
}

impl Screen {
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

    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}{CLEAR_LINE}")).collect();
        write(&format!("{HOME}{}{CLEAR_BELOW}", lines.join("\r\n")))
    }

    /// The keys that were pressed; a terminal that has gone is left.
    pub(super) fn keys(&self) -> io::Result<Vec<Key>> {
        let mut bytes = [0; 64];
        match rustix::io::read(io::stdin(), &mut bytes)? {
            0 => Ok(vec![Key::Quit]),
            count => Ok(bytes[..count].iter().map(|byte| Key::of(*byte)).collect()),
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    streams::write(Stream::Stdout, text.as_bytes())
}
