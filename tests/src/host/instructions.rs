//! Counts the instructions that the locks' fast paths execute.

use crate::{prelude::*, product::profile_folder};

tests![a_lock_with_pv_off_executes_native_instructions];

/// Two numbers of rounds: the difference of their counts is due to the rounds alone.
const ROUNDS: [u32; 2] = [1_000, 11_000];

/// Example of the lock library that takes a lock.
const PROGRAM: &str = "examples/uncontended";

/// Counts the instructions of [`PROGRAM`] with valgrind.
fn count(lock: &str, rounds: u32) -> anyhow::Result<u64> {
    let program = profile_folder()?.join(PROGRAM);
    let ran = Program::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args([program])
        .args([lock, &rounds.to_string()])
        .run()?
        .exits(0)?;
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let counted = stderr.lines().find_map(|line| line.split_once("Collected :"));
    let count = counted.and_then(|(_, count)| count.trim().parse().ok());
    count.with_context(|| format!("valgrind counted nothing\n{}", ran.show()))
}

/// Returns the instructions of one acquisition and release, including the loop around them.
/// Rounded, because longer arguments take a few more to parse.
fn instructions(lock: &str) -> anyhow::Result<u64> {
    let [few, many] = ROUNDS;
    let more = count(lock, many)? - count(lock, few)?;
    Ok((more as f64 / f64::from(many - few)).round() as u64)
}

fn a_lock_with_pv_off_executes_native_instructions() -> anyhow::Result<()> {
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
