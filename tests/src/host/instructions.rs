//! The instructions that the locks' fast paths execute, counted.

use std::{env, ffi::OsString, hint::black_box};

use anyhow::{Context, ensure};
use locks::{Cpu, Handoff, NativeTicketLock, Pv, PvTicketLock, RawLock, Unwatched, WaitTable};

use crate::{process::Program, suite::skip, tests};

tests![a_lock_with_pv_off_executes_what_the_native_one_does];

/// First argument of this binary: takes and releases an uncontended lock.
pub const ERRAND: &str = "--uncontended";

/// Two numbers of rounds: the difference of their counts is due to the rounds alone.
const ROUNDS: [u32; 2] = [1_000, 11_000];

/// A machine without waiters.
struct Machine<const ENABLED: bool>;

impl<const ENABLED: bool> Pv for Machine<ENABLED> {
    const ENABLED: bool = ENABLED;

    fn spin_hint(&self) {}

    fn lock_spinning(&self, _: u16) {}

    fn unlock_kick(&self, _: usize) {}
}

/// `ERRAND LOCK ROUNDS`, in a separate process whose instructions are counted.
pub fn errand(arguments: &[OsString]) -> anyhow::Result<()> {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let &[lock, rounds] = &words[..] else { anyhow::bail!("{ERRAND} LOCK ROUNDS") };
    let rounds = rounds.parse().context("no number of rounds")?;
    match lock {
        "native" => go(&NativeTicketLock::new(), &Machine::<false>, rounds),
        "pv-off" => go(&PvTicketLock::new(), &Machine::<false>, rounds),
        "pv-on" => go(&PvTicketLock::new(), &Machine::<true>, rounds),
        _ => anyhow::bail!("no lock {lock}"),
    }
    Ok(())
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

/// Instructions of this binary's [`errand`], as valgrind counts them.
fn count(lock: &str, rounds: u32) -> anyhow::Result<u64> {
    let own = env::current_exe().context("cannot find myself")?;
    let ran = Program::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args([own.into_os_string()])
        .args([ERRAND, lock, &rounds.to_string()])
        .run()?
        .exits(0)?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let counted = said.lines().find_map(|line| line.split_once("Collected :"));
    let count = counted.and_then(|(_, count)| count.trim().parse().ok());
    count.with_context(|| format!("valgrind counted nothing\n{}", ran.show()))
}

/// Instructions of one acquisition and release, including the loop around them. Rounded: longer
/// arguments take a few more to parse.
fn instructions(lock: &str) -> anyhow::Result<u64> {
    let [few, many] = ROUNDS;
    let more = count(lock, many)? - count(lock, few)?;
    Ok((more as f64 / f64::from(many - few)).round() as u64)
}

fn a_lock_with_pv_off_executes_what_the_native_one_does() -> anyhow::Result<()> {
    if Program::new("valgrind").args(["--version"]).run().is_err() {
        return skip("no valgrind here");
    }
    let [native, off, on] =
        [instructions("native")?, instructions("pv-off")?, instructions("pv-on")?];
    ensure!(native > 5, "a lock of {native} instructions was optimised away");
    ensure!(off == native, "native executes {native} instructions, with PV off {off}");
    ensure!(on > off, "PV on is compiled away: {on} instructions");
    Ok(())
}
