//! Repeats tests whose failure may be due to chance.
//!
//! The summary lists every test that passed only after a repetition, with the reasons. A broken guarantee
//! (mutual exclusion, a wrong figure) fails a test at once. A test is repeated only if a check by
//! [`expect_usually!`](crate::expect_usually) failed or a guest of the emulated host died or hung ([`Killed`]).

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    emulator::Killed,
    log,
    suite::{MAX_KILLED, Outcome, Test, Verdict},
    unlisted_calls,
};

/// Number of tests in this process whose guest died.
static KILLED_TESTS: AtomicUsize = AtomicUsize::new(0);

/// Repetitions of a test after a [`Miss`]. A defect would recur each time.
const MISS_RETRIES: usize = 2;

/// Repetitions of a test whose guest died in the emulated host. Switching static keys twenty times under load
/// once killed it twice in a row.
const KILL_RETRIES: usize = 2;

/// A violated condition that nearly always holds for a correct product on a calm machine.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Miss(pub String);

/// Like `ensure!`, for conditions that chance or a busy machine may violate, such as the frequency of a
/// random event or a duration. The test is repeated, a bounded number of times.
#[macro_export]
macro_rules! expect_usually {
    ($condition:expr, $($words:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            return Err($crate::retry::Miss(format!($($words)+)).into());
        }
    }};
}

/// Runs a row of a test's table, and repeats it after a [`Miss`]. Repeating the whole test instead would fail
/// on another row each time. Prints each miss; a row that misses every time fails.
pub fn row<T>(name: &str, attempt: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut missed = 0;
    loop {
        match attempt() {
            Err(error) if error.is::<Miss>() => {
                ensure!(missed < MISS_RETRIES, "missed {} times: {error}", MISS_RETRIES + 1);
                eprintln!("{name}: again: {error}");
                missed += 1;
            }
            result => return result,
        }
    }
}

/// Reasons for the repetitions of a test.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Repeats {
    /// Missed conditions, one per repetition.
    missed: Vec<String>,
    /// How the guest died, once per repetition.
    killed: Vec<String>,
}

impl Repeats {
    /// Notes a miss or a dead guest. Returns false for a real failure or after the last repetition.
    fn forgive(&mut self, error: &anyhow::Error) -> bool {
        if let Some(Killed(how)) = error.downcast_ref() {
            self.killed.push(how.clone());
            return self.killed.len() <= KILL_RETRIES;
        }
        let missed = error.downcast_ref::<Miss>().filter(|_| self.missed.len() < MISS_RETRIES);
        self.missed.extend(missed.map(|Miss(what)| what.lines().next().unwrap_or("").to_owned()));
        missed.is_some()
    }

    fn is_empty(&self) -> bool {
        self.missed.is_empty() && self.killed.is_empty()
    }

    /// Whether a guest died.
    pub const fn has_killed(&self) -> bool {
        !self.killed.is_empty()
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_killed() {
            write!(f, "a guest of the emulated host died: {}", self.killed.join("; "))?;
        }
        if !self.missed.is_empty() {
            let comma = if self.has_killed() { "; " } else { "" };
            let (times, missed) = (self.missed.len(), self.missed.join("; "));
            write!(f, "{comma}missed by chance, {times} of {MISS_RETRIES} times: {missed}")?;
        }
        Ok(())
    }
}

/// Runs a test like [`run`], unless a guest died in too many tests before. The whole run has failed by then,
/// and each further guest that hangs would take three minutes, three times.
pub fn run_unless_too_many_died(test: &Test) -> Outcome {
    if KILLED_TESTS.load(Ordering::Relaxed) <= MAX_KILLED {
        return run(test);
    }
    Outcome::failed(format!("not run: a guest died or hung in more than {MAX_KILLED} tests"))
}

/// Runs a test, and repeats it after a [`Miss`] or if its guest died in the emulated host.
pub fn run(test: &Test) -> Outcome {
    let began = Instant::now();
    let verdict = verdict(test);
    let verdict = unlisted_calls::take().map_or(verdict, Verdict::Failed);
    Outcome { verdict, log: log::take(), took: began.elapsed() }
}

fn verdict(test: &Test) -> Verdict {
    let mut repeats = Repeats::default();
    let result = loop {
        match (test.run)() {
            Err(error) if repeats.forgive(&error) => log::add(&format!("repeated: {error:#}")),
            result => break result,
        }
    };
    if repeats.has_killed() {
        KILLED_TESTS.fetch_add(1, Ordering::Relaxed);
    }
    match result {
        Ok(()) if !repeats.is_empty() => Verdict::PassedAtLast(repeats),
        result => result.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::ensure;

    use super::*;
    use crate::suite::Tier;

    fn test(run: fn() -> anyhow::Result<()>) -> Test {
        Test { name: "tests::it", tier: Tier::Short, run }
    }

    #[test]
    fn only_missed_chances_are_repeated() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let third = verdict(&test(|| {
            expect_usually!(RUNS.fetch_add(1, Ordering::Relaxed) == 2, "no luck\nat all");
            Ok(())
        }));
        let Verdict::PassedAtLast(repeats) = third else { panic!("{third:?}") };
        assert_eq!(repeats.to_string(), "missed by chance, 2 of 2 times: no luck; no luck");
        let never = verdict(&test(|| {
            expect_usually!(false, "no luck");
            Ok(())
        }));
        assert_eq!(never, Verdict::Failed("no luck".into()));
        let broken = verdict(&test(|| {
            ensure!(RUNS.fetch_add(1, Ordering::Relaxed) > 9, "broken");
            Ok(())
        }));
        assert_eq!(broken, Verdict::Failed("broken".into()));
        assert_eq!(RUNS.load(Ordering::Relaxed), 4, "it was repeated");
    }

    #[test]
    fn a_dead_guest_is_repeated_twice_and_reported() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let repeated = verdict(&test(|| match RUNS.fetch_add(1, Ordering::Relaxed) {
            0 => Err(anyhow::Error::new(Killed("it panicked".into())).context("status 1")),
            _ => Ok(()),
        }));
        let Verdict::PassedAtLast(repeats) = repeated else { panic!("{repeated:?}") };
        assert_eq!(repeats.to_string(), "a guest of the emulated host died: it panicked");
        let always = || Err(anyhow::Error::new(Killed("it panicked".into())).context("status 1"));
        assert_eq!(verdict(&test(always)), Verdict::Failed("status 1: it panicked".into()));
        // A guest has died in two tests so far.
        for _ in 2..=MAX_KILLED {
            let verdict = run_unless_too_many_died(&test(always)).verdict;
            assert_eq!(verdict, Verdict::Failed("status 1: it panicked".into()));
        }
        let not_run = run_unless_too_many_died(&test(|| unreachable!())).verdict;
        assert!(matches!(not_run, Verdict::Failed(reason) if reason.starts_with("not run: ")));
    }
}
