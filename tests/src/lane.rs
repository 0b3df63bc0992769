//! Tests that run one after the other on a thread of their own, beside those of the runner's threads.
//!
//! The runner asks for their outcomes when it has run what it has besides, and then waits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use crate::suite::{Outcome, Test};

/// The outcomes so far of tests that a thread runs in order.
#[derive(Debug, Clone)]
pub struct Lane(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcomes: BTreeMap<&'static str, Outcome>,
    has_ended: bool,
}

impl Lane {
    /// Starts a thread that runs these tests.
    pub fn start(tests: Vec<Test>, run: impl Fn(&Test) -> Outcome + Send + 'static) -> Self {
        let lane = Self(Arc::default());
        let ours = Ended(lane.clone());
        thread::spawn(move || {
            for test in &tests {
                let outcome = run(test);
                ours.0.lock().outcomes.insert(test.name(), outcome);
                ours.0.0.changed.notify_all();
            }
        });
        lane
    }

    /// Waits for the outcome of this test.
    pub fn outcome(&self, test: &Test) -> Outcome {
        let waits =
            |state: &mut State| !state.outcomes.contains_key(test.name()) && !state.has_ended;
        let state = self.0.changed.wait_while(self.lock(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let ran = state.outcomes.remove(test.name());
        ran.unwrap_or_else(|| Outcome::failed("not run: an earlier test panicked".into()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes the end of the lane's thread, by a panic, too.
struct Ended(Lane);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.0.changed.notify_all();
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

    fn passed(test: &Test) -> Outcome {
        assert_ne!(test.name(), "panics");
        Outcome { verdict: Verdict::Passed, log: test.name().into(), took: Duration::ZERO }
    }

    #[test]
    fn outcomes_are_waited_for_in_any_order() {
        let tests = ["crate::a", "crate::b", "crate::c"].map(test);
        let lane = Lane::start(tests.to_vec(), passed);
        for test in tests.iter().rev() {
            let outcome = lane.outcome(test);
            assert_eq!((outcome.verdict, outcome.log.as_str()), (Verdict::Passed, test.name()));
        }
    }

    #[test]
    fn what_a_panic_leaves_out_has_failed() {
        let tests = ["crate::a", "crate::panics", "crate::c"].map(test);
        let lane = Lane::start(tests.to_vec(), passed);
        let outcomes = tests.map(|test| lane.outcome(&test).verdict);
        assert_eq!(outcomes[0], Verdict::Passed);
        assert!(outcomes[1..].iter().all(|verdict| matches!(verdict, Verdict::Failed(_))));
    }
}
