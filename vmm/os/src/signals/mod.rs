//! Signal handling of all commands.
//!
//! The first SIGINT, SIGTERM or SIGHUP requests an orderly exit: it raises the [`Interrupt`] of [`catch`]. A
//! second signal restores the terminal and takes its default action, which ends the process at once. A signal
//! that was ignored when the process started stays ignored, as nohup(1) and background jobs of scripts
//! expect. The limit of CPU time also causes an orderly exit, with status 1: its signal is repeated every
//! second, and the hard limit ends the process at once. SIGTSTP restores the terminal's mode and SIGCONT sets
//! it again, through the functions passed to [`around_stops`].

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

const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGTERM, SIGXCPU];

/// Signals this close together count as one: timeout(1) signals its child and then the child's group, and a
/// terminal that hangs up may signal twice, too.
const COALESCE_TIME: Duration = Duration::from_millis(100);

/// The flag raised by signals, once they are caught.
static CAUGHT: Mutex<Option<Interrupt>> = Mutex::new(None);
/// The first ending signal received; 0: none.
static FIRST: AtomicI32 = AtomicI32::new(0);
/// Arrival time of `FIRST`.
static SINCE: OnceLock<Instant> = OnceLock::new();

/// A resource to release while the process is stopped, and before a second signal ends it.
#[derive(Debug, Clone, Copy)]
pub struct StopHooks {
    /// Releases the resource.
    pub release: fn(),
    /// Acquires the resource again after the process is continued.
    pub acquire: fn(),
}

static STOP_HOOKS: OnceLock<StopHooks> = OnceLock::new();

/// Registers functions that the signal thread calls around stops. Only the first call has an effect.
pub fn around_stops(hooks: StopHooks) {
    let _ = STOP_HOOKS.set(hooks);
}

fn release() {
    if let Some(hooks) = STOP_HOOKS.get() {
        (hooks.release)();
    }
}

fn acquire() {
    if let Some(hooks) = STOP_HOOKS.get() {
        (hooks.acquire)();
    }
}

/// Makes SIGINT, SIGTERM, SIGHUP and SIGXCPU request an orderly exit from now on: they raise the returned flag,
/// which all callers share.
pub fn catch() -> io::Result<Interrupt> {
    let mut caught = CAUGHT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(interrupt) = &*caught {
        return Ok(interrupt.clone());
    }
    let interrupt = Interrupt::with_descriptor()?;
    let numbers = ENDING.into_iter().chain([SIGTSTP, SIGCONT]);
    let signals = Signals::new(numbers.filter(|signal| !is_ignored(*signal)))?;
    fatal::watch_cpu_time();
    let raised = interrupt.clone();
    thread::Builder::new()
        .name("signals".into())
        .stack_size(STACK_BYTES)
        .spawn(move || handle_signals(signals, &raised))?;
    Ok(caught.insert(interrupt).clone())
}

/// Stack size of the signal thread.
const STACK_BYTES: usize = 128 << 10;

/// Returns the flag raised by signals, if they are caught.
pub fn caught() -> Option<Interrupt> {
    CAUGHT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the exit status after an orderly exit on request: [`status_of`] the signal. An exit requested by a
/// key has the status of Ctrl-C.
pub fn exit_status() -> u8 {
    match FIRST.load(SeqCst) {
        0 => status_of(SIGINT),
        signal => status_of(signal),
    }
}

/// Returns the exit status for this signal: 128 plus its number, as in shells, but 1 at the limit of CPU time.
pub fn status_of(signal: i32) -> u8 {
    if signal == SIGXCPU { 1 } else { 128 + (signal as u8 & 0x7f) }
}

/// Whether the limit of CPU time requested the exit.
pub fn is_out_of_time() -> bool {
    first() == Some(SIGXCPU)
}

/// Returns the signal that requested the exit, if any.
pub fn first() -> Option<i32> {
    Some(FIRST.load(SeqCst)).filter(|signal| *signal != 0)
}

/// Returns the time since the [`first`] signal.
pub fn since_first() -> Option<Duration> {
    SINCE.get().map(Instant::elapsed)
}

fn handle_signals(mut signals: Signals, interrupt: &Interrupt) {
    confine::enter(Class::Signals);
    for signal in signals.forever() {
        match signal {
            SIGTSTP => {
                release();
                // Returns when the process is continued.
                let _ = emulate_default_handler(SIGTSTP);
                acquire();
            }
            SIGCONT => acquire(),
            SIGXCPU if SINCE.get().is_some() => {}
            _ => match SINCE.get() {
                None => {
                    FIRST.store(signal, SeqCst);
                    let _ = SINCE.set(Instant::now());
                    interrupt.raise();
                }
                Some(first) if first.elapsed() < COALESCE_TIME => {}
                Some(_) => {
                    release();
                    let _ = emulate_default_handler(signal);
                }
            },
        }
    }
}
