//! Runs tests one after the other on a separate thread, in parallel with the runner's threads.
//!
//! The runner asks for their outcomes after it has run its other tests, and then waits.

use std::sync::{
    Mutex, PoisonError,
    mpsc::{Receiver, channel},
};

use crate::{
    prelude::*,
    suite::{Outcome, Test},
};

/// Outcomes of tests that a thread runs in order.
#[derive(Debug)]
pub struct Lane(Mutex<Outcomes>);

#[derive(Debug)]
struct Outcomes {
    receiver: Receiver<(&'static str, Outcome)>,
    /// Outcomes received before the runner asked for them.
    ready: BTreeMap<&'static str, Outcome>,
}

impl Lane {
    /// Starts a thread that runs tests and passes on each outcome.
    pub fn start(run: impl FnOnce(&dyn Fn(&Test, Outcome)) + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            // Sending fails only if the receiver no longer exists.
            run(&|test, outcome| drop(sender.send((test.name(), outcome))));
        });
        Self(Mutex::new(Outcomes { receiver, ready: BTreeMap::new() }))
    }

    /// Waits for the outcome of this test. Callers block each other: `recv` runs under the lock.
    pub fn outcome(&self, test: &Test) -> Outcome {
        let mut outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = outcomes.ready.remove(test.name()) {
                return outcome;
            }
            match outcomes.receiver.recv() {
                Ok((name, outcome)) => drop(outcomes.ready.insert(name, outcome)),
                Err(_) => return Outcome::failed("not run: an earlier test panicked".into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::suite::{Tier, Verdict};

    fn test(name: &'static str) -> Test {
        Test { name, tier: Tier::Short, run: || Ok(()) }
    }

    fn lane(tests: [Test; 3]) -> Lane {
        Lane::start(move |pass| {
            for test in &tests {
                assert_ne!(test.name(), "panics");
                let (verdict, log) = (Verdict::Passed, test.name().into());
                pass(test, Outcome { verdict, log, took: Duration::ZERO });
            }
        })
    }

    #[test]
    fn outcomes_may_be_requested_in_any_order() {
        let tests = ["crate::a", "crate::b", "crate::c"].map(test);
        let lane = lane(tests);
        for test in tests.iter().rev() {
            let outcome = lane.outcome(test);
            assert_eq!((outcome.verdict, outcome.log.as_str()), (Verdict::Passed, test.name()));
        }
    }

    #[test]
    fn tests_after_a_panic_fail() {
        let tests = ["crate::a", "crate::panics", "crate::c"].map(test);
        let lane = lane(tests);
        let outcomes = tests.map(|test| lane.outcome(&test).verdict);
        assert_eq!(outcomes[0], Verdict::Passed);
        assert!(outcomes[1..].iter().all(|verdict| matches!(verdict, Verdict::Failed(_))));
    }
}
