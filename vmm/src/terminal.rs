//! The user's terminal: raw mode while a guest has it, the other screen while `top` does.
//!
//! It is as it was on every way out: dropped, at a signal that ends or stops the process
//! ([`crate::signals`]), at a panic, and at a fatal signal ([`fatal`]).

use std::{
    io::{self, IsTerminal, Stdin},
    panic,
    sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError},
};

use rustix::{
    process::getpgrp,
    termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};

use crate::{
    kvm::sys::fatal,
    signals,
    streams::{self, Stream},
};

/// The other screen, no cursor, and no line goes on in the next (xterm's control sequences).
const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";

/// How a terminal is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// In raw mode.
    Keys,
    /// In raw mode, on its other screen.
    Screen,
}

/// A terminal that is held, and what it is without.
#[derive(Debug)]
struct Held {
    stdin: Stdin,
    saved: Termios,
    raw: Termios,
    hold: Hold,
    /// It has been given back, for the time being.
    is_back: bool,
}

static HELD: Mutex<Option<Held>> = Mutex::new(None);

/// Holds the terminal; dropping it restores what was there.
#[derive(Debug)]
pub struct RawTerminal(());

impl RawTerminal {
    /// Takes the terminal, if stdin is one. Signals are caught from before.
    pub fn enter(hold: Hold) -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        signals::catch()?;
        restore_at_panics();
        let saved = tcgetattr(&stdin)?;
        let mut raw = saved.clone();
        raw.make_raw();
        // The guest's terminal driver already sends CR LF; output processing of
        // ours stays on for our own messages.
        raw.output_modes = saved.output_modes;
        fatal::arm(hold == Hold::Screen);
        let held = Held { stdin, saved, raw, hold, is_back: true };
        lock().insert(held).take()?;
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

impl Held {
    fn take(&mut self) -> io::Result<()> {
        tcsetattr(&self.stdin, OptionalActions::Now, &self.raw)?;
        fatal::arm(self.hold == Hold::Screen);
        self.is_back = false;
        if self.hold == Hold::Screen {
            streams::offer(Stream::Stdout, ENTER_SCREEN.as_bytes())?;
        }
        Ok(())
    }

    /// Nothing can be done about a terminal that has gone away; one that another job has by now
    /// is that job's.
    fn give_back(&mut self) {
        if self.is_back || !self.is_ours() {
            return;
        }
        if self.hold == Hold::Screen {
            // Before the modes: what is written in raw mode is not changed on its way.
            let _ = streams::offer(Stream::Stdout, fatal::LEAVE_SCREEN.as_bytes());
        }
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.saved);
        fatal::disarm();
        self.is_back = true;
    }

    /// Is this process in the terminal's foreground? Where it is not its controlling terminal
    /// there is no such thing.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.stdin).map_or(true, |group| group == getpgrp())
    }
}

fn lock() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the terminal back, for good or for as long as the process is stopped.
pub fn give_back() {
    if let Some(held) = &mut *lock() {
        held.give_back();
    }
}

/// Takes the terminal again, if it is held and the process is in its foreground: a shell has
/// given it modes of its own meanwhile.
pub fn take_again() {
    if let Some(held) = &mut *lock()
        && held.is_ours()
    {
        // Without it the guest's keys are cooked, which is no reason to end.
        let _ = held.take();
    }
}

/// The message of a panic is for a terminal as it was.
fn restore_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let mut held = match HELD.try_lock() {
                Ok(held) => Some(held),
                Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
                // Whoever has it is at it.
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(Some(held)) = held.as_deref_mut() {
                held.give_back();
            }
            before(info);
        }));
    });
}
