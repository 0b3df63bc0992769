//! Ends a simulation that gets nowhere for long by the host's clock.
//!
//! A simulation has a bound in steps, and a step of a thousand vCPUs takes the host thirty times as long as one of
//! sixteen: a lock that never makes progress would be simulated for a quarter of an hour.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::units::Nanos;
use kvm::signal::ThreadClock;

/// CPU time without a completed operation after which a simulation is given up. Those that get on complete one in seconds,
/// of 1024 vCPUs on 80 CPUs, too.
pub(super) const LONGEST: Nanos = Nanos::millis(120_000);

/// Watches the progress of one simulation.
#[derive(Debug)]
pub(super) struct Patience {
    longest: Nanos,
    /// How much was done when that was last seen to grow, and the CPU time at that moment.
    seen: Mutex<(u64, Nanos)>,
    is_over: AtomicBool,
}

impl Patience {
    pub(super) const fn new(longest: Nanos, now: Nanos) -> Self {
        Self { longest, seen: Mutex::new((0, now)), is_over: AtomicBool::new(false) }
    }

    /// So much is done at `now`. Is that too little?
    pub(super) fn look(&self, done: u64, now: Nanos) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if done != seen.0 {
            *seen = (done, now);
        }
        let is_over = now.since(seen.1) > self.longest;
        if is_over {
            self.is_over.store(true, Relaxed);
        }
        is_over
    }

    /// Has it ended the simulation?
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

/// The CPU time that the calling thread has had: time in which it stood still is none of the simulation's.
pub(super) fn now() -> Nanos {
    ThreadClock::of_this_thread().and_then(ThreadClock::read).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_without_progress_counts() {
        let second = |number: u64| Nanos::millis(number * 1_000);
        let patience = Patience::new(second(10), second(5));
        assert!(!patience.look(0, second(15)));
        assert!(!patience.look(1, second(16)), "there is an operation");
        assert!(!patience.look(1, second(26)) && !patience.is_over());
        assert!(patience.look(1, second(27)) && patience.is_over());
    }
}
