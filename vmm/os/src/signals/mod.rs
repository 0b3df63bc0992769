//! Signals: one place for every command.
//!
//! The first SIGINT, SIGTERM or SIGHUP asks for an orderly end: it raises the [`Interrupt`] of
//! [`catch`]. A second one restores the terminal and takes its default action: the process ends at
//! once, whatever it is doing. A signal that was ignored when the process started stays ignored, as
//! nohup(1) and background jobs of scripts expect. The limit of CPU time ends it in order, too, with status 1:
//! its signal comes again each second, and the hard limit ends the process at once. SIGTSTP restores the terminal's mode, SIGCONT
//! sets it again, by what [`around_stops`] was given.

mod interrupt;

use std::{
    io,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicI32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGXCPU},
    iterator::Signals,
    low_level::emulate_default_handler,
};

pub use interrupt::{Interrupt, Listener};

use confine::Class;
use kvm::sys::{disposition::is_ignored, fatal};

/// Signals that end the program.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGTERM, SIGXCPU];

/// Two signals this close count as one: timeout(1) signals its child and then the child's group,
/// and a terminal that hangs up may signal twice, too.
const TOGETHER: Duration = Duration::from_millis(100);

/// The flag that the signals raise, once they are caught.
static CAUGHT: Mutex<Option<Interrupt>> = Mutex::new(None);
/// The first ending signal received; 0: none.
static FIRST: AtomicI32 = AtomicI32::new(0);
/// When it was received.
static SINCE: OnceLock<Instant> = OnceLock::new();

/// What has to be given back while the process is stopped, and before it ends at once.
#[derive(Debug, Clone, Copy)]
pub struct Loan {
    /// Gives it back.
    pub give_back: fn(),
    /// Takes it again, once the process is continued.
    pub take_again: fn(),
}

static LOAN: OnceLock<Loan> = OnceLock::new();

/// Has these functions called around stops; the first call counts. The signal thread calls them.
pub fn around_stops(loan: Loan) {
    let _ = LOAN.set(loan);
}

fn give_back() {
    if let Some(loan) = LOAN.get() {
        (loan.give_back)();
    }
}

fn take_again() {
    if let Some(loan) = LOAN.get() {
        (loan.take_again)();
    }
}

/// Makes SIGINT, SIGTERM and SIGHUP end the program in order from now on: they raise the returned
/// flag, which all callers share.
pub fn catch() -> io::Result<Interrupt> {
    let mut caught = CAUGHT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(interrupt) = &*caught {
        return Ok(interrupt.clone());
    }
    let interrupt = Interrupt::with_bell()?;
    let wanted = ENDING.into_iter().chain([SIGTSTP, SIGCONT]).filter(|signal| !is_ignored(*signal));
    let signals = Signals::new(wanted)?;
    fatal::watch_time();
    let raised = interrupt.clone();
    thread::Builder::new()
        .name("signals".into())
        .stack_size(STACK_BYTES)
        .spawn(move || attend(signals, &raised))?;
    Ok(caught.insert(interrupt).clone())
}

/// Stack size of the signal thread.
const STACK_BYTES: usize = 128 << 10;

/// The flag that the signals raise, if they are caught.
pub fn caught() -> Option<Interrupt> {
    CAUGHT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Exit status after an orderly end that the user asked for: 128 plus the signal's number, as in
/// shells; if a key asked for it, that of Ctrl-C.
pub fn exit_status() -> u8 {
    match FIRST.load(SeqCst) {
        0 => status_of(SIGINT),
        signal => status_of(signal),
    }
}

/// Exit status of an end by this signal. The limit of CPU time is an error, as any other limit.
pub fn status_of(signal: i32) -> u8 {
    if signal == SIGXCPU { 1 } else { 128 + (signal as u8 & 0x7f) }
}

/// Did the limit of CPU time ask for the end?
pub fn is_out_of_time() -> bool {
    first() == Some(SIGXCPU)
}

/// The first signal that asked for the end.
pub fn first() -> Option<i32> {
    Some(FIRST.load(SeqCst)).filter(|signal| *signal != 0)
}

/// Time since that signal.
pub fn since_first() -> Option<Duration> {
    SINCE.get().map(Instant::elapsed)
}

fn attend(mut signals: Signals, interrupt: &Interrupt) {
    confine::enter(Class::Signals);
    for signal in signals.forever() {
        match signal {
            SIGTSTP => {
                give_back();
                // Returns when the process is continued.
                let _ = emulate_default_handler(SIGTSTP);
                take_again();
            }
            SIGCONT => take_again(),
            SIGXCPU if SINCE.get().is_some() => {}
            _ => match SINCE.get() {
                None => {
                    FIRST.store(signal, SeqCst);
                    let _ = SINCE.set(Instant::now());
                    interrupt.raise();
                }
                Some(first) if first.elapsed() < TOGETHER => {}
                Some(_) => {
                    give_back();
                    let _ = emulate_default_handler(signal);
                }
            },
        }
    }
}
