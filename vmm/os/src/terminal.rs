//! The user's terminal: raw mode while a guest uses it.
//!
//! The terminal is restored on every exit path: on drop, on a signal that ends or stops the process
//! ([`crate::signals`]), on a panic, and on a fatal signal ([`fatal`]).
//!
//! While another job is in the terminal's foreground, the terminal is left alone: its modes are not changed
//! and its input is not read. Either would stop the process (SIGTTOU, SIGTTIN) each time it is continued, so
//! that no signal could end it cleanly: [`kvm::signal::block_stops_by_terminal`] blocks both signals.

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
    signals::{self, StopHooks},
    streams,
};
use kvm::sys::fatal;

/// A terminal in use.
#[derive(Debug)]
struct HeldTerminal {
    stdin: Stdin,
    /// `None` until the terminal is first taken.
    modes: Option<Modes>,
    /// False if the terminal is released for now, or has not been taken yet.
    is_taken: bool,
}

/// Original modes of the terminal, and the modes while in use.
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
    /// Takes the terminal; None if stdin is not a terminal. A background process takes it when continued.
    pub fn enter() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        signals::around_stops(StopHooks { release, acquire });
        signals::catch()?;
        restore_at_panics();
        let mut held = lock();
        let held = held.insert(HeldTerminal { stdin, modes: None, is_taken: false });
        if is_foreground() {
            held.take()?;
        }
        Ok(Some(Self(())))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(mut held) = lock().take() {
            held.release();
        }
    }
}

impl HeldTerminal {
    fn take(&mut self) -> io::Result<()> {
        let modes = match &mut self.modes {
            Some(modes) => modes,
            None => self.modes.insert(Modes::read(&self.stdin)?),
        };
        // `arm` saves the modes, so it must run before they change.
        fatal::arm();
        tcsetattr(&self.stdin, OptionalActions::Now, &modes.raw)?;
        self.is_taken = true;
        Ok(())
    }

    /// Errors are ignored, since nothing can be done about a terminal that has hung up. If another job is in
    /// the foreground by now, the terminal is left to it.
    fn release(&mut self) {
        let Some(modes) = self.modes.as_ref().filter(|_| self.is_taken && is_foreground()) else {
            return;
        };
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &modes.saved);
        fatal::disarm();
        self.is_taken = false;
    }
}

/// Whether this process may read its stdin: not if stdin is the terminal of another job.
pub fn may_read_input() -> bool {
    !streams::input_is_terminal() || is_foreground()
}

/// Whether this process may use the terminal that is its stdin: not while another job is in the terminal's
/// foreground. Always true if stdin is not the controlling terminal, or not a terminal.
pub fn is_foreground() -> bool {
    tcgetpgrp(stdio::stdin()).map_or(true, |group| group == getpgrp())
}

fn lock() -> MutexGuard<'static, Option<HeldTerminal>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases the terminal, permanently or while the process is stopped.
fn release() {
    if let Some(held) = &mut *lock() {
        held.release();
    }
}

/// Takes the terminal again if it is in use and the process is in its foreground: a shell may have changed
/// its modes in the meantime.
fn acquire() {
    if let Some(held) = &mut *lock()
        && is_foreground()
    {
        // On failure, the guest gets its input line by line, which is no reason to exit.
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
                // The thread that holds the lock is already handling the terminal.
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(Some(held)) = held.as_deref_mut() {
                held.release();
            }
            before(info);
        }));
    });
}
