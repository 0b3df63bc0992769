//! `uncontended LOCK ROUNDS` takes and releases an uncontended lock ROUNDS times. A test counts
//! its instructions (`tests/src/host/instructions.rs`).

#![forbid(unsafe_code)]

use std::{env, hint::black_box, process::ExitCode};

use locks::{Cpu, Handoff, NativeTicketLock, Pv, PvTicketLock, RawLock, Unwatched, WaitTable};

/// A machine without waiters.
struct Machine<const ENABLED: bool>;

impl<const ENABLED: bool> Pv for Machine<ENABLED> {
    const ENABLED: bool = ENABLED;

    fn spin_hint(&self) {}

    fn lock_spinning(&self, _: u16) {}

    fn unlock_kick(&self, _: usize) {}
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let rounds = words.get(1).and_then(|rounds| rounds.parse().ok());
    match (words.first(), rounds) {
        (Some(&"native"), Some(rounds)) => {
            go(&NativeTicketLock::new(), &Machine::<false>, rounds);
        }
        (Some(&"pv-off"), Some(rounds)) => go(&PvTicketLock::new(), &Machine::<false>, rounds),
        (Some(&"pv-on"), Some(rounds)) => go(&PvTicketLock::new(), &Machine::<true>, rounds),
        _ => {
            eprintln!("usage: uncontended native|pv-off|pv-on ROUNDS");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

#[inline(never)]
fn go<L: RawLock, P: Pv>(lock: &L, pv: &P, rounds: u32) {
    let waiters = WaitTable::new();
    let handoff = Handoff::default();
    let cpu = Cpu { id: 0, spin_threshold: 2048, pv, waiters: &waiters, watch: Unwatched, handoff };
    for _ in 0..rounds {
        let lock = black_box(lock);
        lock.lock(&cpu);
        lock.unlock(&cpu);
    }
}
