//! Tests that are run again: what went wrong was not the product's doing, or need not have been.
//!
//! Of every repetition the summary tells, with its reason. A broken promise (a violated lock, a
//! wrong figure, a hang) ends a test at once; only what [`likely!`](crate::likely) checks, and what
//! the emulated CPU does to guests, gets another try.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    emulator,
    suite::{Test, Verdict, all},
};

/// How often a test may be repeated whose guest the emulated CPU killed.
const KILLED: u32 = 5;
/// How often one of which a [`Chance`] was missed. A fault of ours would be there each time.
const MISSED: usize = 2;

/// What a sound product on a calm machine brings about nearly always, and did not.
#[derive(Debug)]
pub struct Chance(pub String);

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Chance {}

/// As `ensure!`, of what chance or a busy machine may spoil: how often something random happened,
/// how long something took beside something else. The test is run again, a bounded number of times.
#[macro_export]
macro_rules! likely {
    ($condition:expr, $($words:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            return Err($crate::retry::Chance(format!($($words)+)).into());
        }
    }};
}

/// Why a test was repeated, and how often.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Repeats {
    /// Times that the emulated CPU killed its guest.
    killed: u32,
    /// What was missed, each time.
    missed: Vec<String>,
}

impl Repeats {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Takes note of a failure; false: it is one.
    fn forgive(&mut self, error: &anyhow::Error, is_emulated: bool) -> bool {
        if is_emulated && self.killed < KILLED && emulator::has_killed(&all(error)) {
            self.killed += 1;
            return true;
        }
        let missed = error.downcast_ref::<Chance>().filter(|_| self.missed.len() < MISSED);
        self.missed.extend(missed.map(|Chance(what)| what.lines().next().unwrap_or("").to_owned()));
        missed.is_some()
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let killed = (self.killed > 0).then(|| {
            format!("the emulated CPU killed its guest, {} of {KILLED} times", self.killed)
        });
        let times = self.missed.len();
        let missed = (times > 0).then(|| {
            format!("missed by chance, {times} of {MISSED} times: {}", self.missed.join("; "))
        });
        f.write_str(&killed.into_iter().chain(missed).collect::<Vec<_>>().join("; "))
    }
}

/// Runs a test of this host's CPU.
pub fn run(test: &Test) -> Verdict {
    stubbornly(test, false)
}

/// Runs one whose guests an emulated CPU may kill.
pub fn run_emulated(test: &Test) -> Verdict {
    stubbornly(test, true)
}

fn stubbornly(test: &Test, is_emulated: bool) -> Verdict {
    let mut repeats = Repeats::default();
    loop {
        match (test.run)() {
            Err(error) if repeats.forgive(&error, is_emulated) => {}
            Ok(()) if !repeats.is_none() => return Verdict::PassedAtLast(repeats),
            result => return result.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::{bail, ensure};

    use super::*;

    fn test(run: fn() -> anyhow::Result<()>) -> Test {
        Test { name: "tests::it", run }
    }

    #[test]
    fn a_missed_chance_is_given_again_and_told() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let verdict = run(&test(|| {
            likely!(RUNS.fetch_add(1, Ordering::Relaxed) == 2, "no luck\nat all");
            Ok(())
        }));
        let Verdict::PassedAtLast(repeats) = verdict else { panic!("{verdict:?}") };
        assert_eq!(repeats.to_string(), "missed by chance, 2 of 2 times: no luck; no luck");
    }

    #[test]
    fn what_is_missed_each_time_is_a_failure() {
        let never = run(&test(|| {
            likely!(false, "no luck");
            Ok(())
        }));
        assert_eq!(never, Verdict::Failed("no luck".into()));
    }

    #[test]
    fn a_broken_promise_is_one_at_once() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let verdict = run_emulated(&test(|| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            ensure!(1 > 2, "broken");
            Ok(())
        }));
        assert_eq!(verdict, Verdict::Failed("broken".into()));
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn only_an_emulated_cpu_kills_guests() {
        let killed: fn() -> anyhow::Result<()> =
            || bail!("vCPU 1: triple fault; the guest's console shows what led to it");
        let mut repeats = Repeats::default();
        let error = killed().expect_err("it fails");
        assert!(!repeats.forgive(&error, false));
        assert!((0..KILLED).all(|_| repeats.forgive(&error, true)));
        assert!(!repeats.forgive(&error, true));
        assert_eq!(repeats.to_string(), "the emulated CPU killed its guest, 5 of 5 times");
    }
}
