//! Tests that are run again: what went wrong may have been chance.
//!
//! Of every repetition the summary tells, with its reason. A broken promise (a violated lock, a
//! wrong figure, a hang, a dead guest) ends a test at once; only what [`expect_usually!`](crate::expect_usually)
//! checks gets another try.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::suite::{Test, Verdict};

/// How often a test may be repeated of which a [`Chance`] was missed. A fault of ours would be there each time.
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
macro_rules! expect_usually {
    ($condition:expr, $($words:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            return Err($crate::retry::Chance(format!($($words)+)).into());
        }
    }};
}

/// What was missed, each time that a test was repeated.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Repeats(Vec<String>);

impl Repeats {
    /// Takes note of a failure; false: it is one.
    fn forgive(&mut self, error: &anyhow::Error) -> bool {
        let missed = error.downcast_ref::<Chance>().filter(|_| self.0.len() < MISSED);
        self.0.extend(missed.map(|Chance(what)| what.lines().next().unwrap_or("").to_owned()));
        missed.is_some()
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (times, missed) = (self.0.len(), self.0.join("; "));
        write!(f, "missed by chance, {times} of {MISSED} times: {missed}")
    }
}

/// Runs a test, again where a [`Chance`] was missed.
pub fn run(test: &Test) -> Verdict {
    let mut repeats = Repeats::default();
    loop {
        match (test.run)() {
            Err(error) if repeats.forgive(&error) => {}
            Ok(()) if !repeats.0.is_empty() => return Verdict::PassedAtLast(repeats),
            result => return result.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::ensure;

    use super::*;

    fn test(run: fn() -> anyhow::Result<()>) -> Test {
        Test { name: "tests::it", run }
    }

    #[test]
    fn a_missed_chance_is_given_again_and_told() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let verdict = run(&test(|| {
            expect_usually!(RUNS.fetch_add(1, Ordering::Relaxed) == 2, "no luck\nat all");
            Ok(())
        }));
        let Verdict::PassedAtLast(repeats) = verdict else { panic!("{verdict:?}") };
        assert_eq!(repeats.to_string(), "missed by chance, 2 of 2 times: no luck; no luck");
    }

    #[test]
    fn what_is_missed_each_time_is_a_failure() {
        let never = run(&test(|| {
            expect_usually!(false, "no luck");
            Ok(())
        }));
        assert_eq!(never, Verdict::Failed("no luck".into()));
    }

    #[test]
    fn a_broken_promise_is_one_at_once() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let verdict = run(&test(|| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            ensure!(1 > 2, "broken");
            Ok(())
        }));
        assert_eq!(verdict, Verdict::Failed("broken".into()));
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    }
}
