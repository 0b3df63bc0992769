//! The user's terminal: raw mode while a guest has it, the alternate screen while `top` does.
//!
//! The terminal is restored on every way out: on drop, on a signal that ends or stops the process
//! ([`crate::signals`]), on a panic, and on a fatal signal ([`fatal`]).
//!
//! While another job is in the terminal's foreground, the terminal is left alone: neither are its modes changed nor its
//! input read. The kernel would stop the process for either (SIGTTOU, SIGTTIN), again each time it is continued, so that
//! no signal could end it in an orderly way; both signals are blocked ([`kvm::signal::block_stops_by_terminal`]).

use std::{
    io::{self, IsTerminal, Stdin},
    panic,
    sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError},
};

use rustix::{
    process::getpgrp,
    stdio,
    termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};

use crate::{
    signals::{self, Loan},
    streams::{self, Stream},
};
use kvm::sys::fatal;

/// Alternate screen, no cursor, no line wrapping (xterm's control sequences).
const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";

/// How the terminal is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// In raw mode.
    Keys,
    /// In raw mode, on its alternate screen.
    Screen,
}

/// A terminal in use.
#[derive(Debug)]
struct HeldTerminal {
    stdin: Stdin,
    /// `None` until the terminal is first taken.
    modes: Option<Modes>,
    hold: Hold,
    /// The terminal has been given back for the time being, or not been taken yet.
    is_back: bool,
}

/// Original modes of the terminal, and those of its use.
#[derive(Debug)]
struct Modes {
    saved: Termios,
    raw: Termios,
}

impl Modes {
    fn read(stdin: &Stdin) -> io::Result<Self> {
        let saved = tcgetattr(stdin)?;
        let mut raw = saved.clone();
        raw.make_raw();
        // The guest's terminal driver already sends CR LF; output processing stays on for our own
        // messages.
        raw.output_modes = saved.output_modes;
        Ok(Self { saved, raw })
    }
}

static HELD: Mutex<Option<HeldTerminal>> = Mutex::new(None);

/// The terminal in use; dropping this restores it.
#[derive(Debug)]
pub struct RawTerminal(());

impl RawTerminal {
    /// Takes the terminal, if stdin is one. A process in the background takes it once it is continued in the foreground.
    pub fn enter(hold: Hold) -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        signals::around_stops(Loan { give_back, take_again });
        signals::catch()?;
        restore_at_panics();
        let mut held = lock();
        let held = held.insert(HeldTerminal { stdin, modes: None, hold, is_back: true });
        if is_ours() {
            held.take()?;
        }
        Ok(Some(Self(())))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(mut held) = lock().take() {
            held.give_back();
        }
    }
}

impl HeldTerminal {
    fn take(&mut self) -> io::Result<()> {
        let modes = match &mut self.modes {
            Some(modes) => modes,
            None => self.modes.insert(Modes::read(&self.stdin)?),
        };
        // Before the modes are changed: `arm` saves them.
        fatal::arm(self.hold == Hold::Screen);
        tcsetattr(&self.stdin, OptionalActions::Now, &modes.raw)?;
        self.is_back = false;
        if self.hold == Hold::Screen {
            streams::offer(Stream::Stdout, ENTER_SCREEN.as_bytes())?;
        }
        Ok(())
    }

    /// Errors are ignored, since nothing can be done about a terminal that has gone away. If
    /// another job is in the foreground by now, the terminal is left to it.
    fn give_back(&mut self) {
        let Some(modes) = self.modes.as_ref().filter(|_| !self.is_back && is_ours()) else {
            return;
        };
        if self.hold == Hold::Screen {
            // Before the modes: output in raw mode is passed through unchanged.
            let _ = streams::offer(Stream::Stdout, fatal::LEAVE_SCREEN.as_bytes());
        }
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &modes.saved);
        fatal::disarm();
        self.is_back = true;
    }
}

/// May this process read its stdin? Not while it is the terminal of another job.
pub fn input_is_ours() -> bool {
    !streams::input_is_terminal() || is_ours()
}

/// May this process use the terminal that is its stdin? Not while another job is in the terminal's foreground. Always true
/// if stdin is not the controlling terminal, or no terminal at all.
pub fn is_ours() -> bool {
    tcgetpgrp(stdio::stdin()).map_or(true, |group| group == getpgrp())
}

fn lock() -> MutexGuard<'static, Option<HeldTerminal>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the terminal back, for good or while the process is stopped.
fn give_back() {
    if let Some(held) = &mut *lock() {
        held.give_back();
    }
}

/// Takes the terminal again, if it is in use and the process is in its foreground: a shell may have
/// changed its modes in the meantime.
fn take_again() {
    if let Some(held) = &mut *lock()
        && is_ours()
    {
        // If it fails, the guest gets its input in lines, which is no reason to end.
        let _ = held.take();
    }
}

/// Restores the terminal before a panic prints its message.
fn restore_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let mut held = match HELD.try_lock() {
                Ok(held) => Some(held),
                Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
                // The thread that holds the lock is at it already.
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(Some(held)) = held.as_deref_mut() {
                held.give_back();
            }
            before(info);
        }));
    });
}
