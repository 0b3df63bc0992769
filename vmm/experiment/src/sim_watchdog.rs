//! Ends a simulation that uses much CPU time of the host without progress.
//!
//! A simulation is bounded in steps, but a step of a thousand vCPUs takes the host thirty times as long as a
//! step of sixteen: a lock that never makes progress would be simulated for a quarter of an hour.

use std::sync::{Mutex, PoisonError};

use base::units::Nanos;
use kvm::signal::ThreadClock;
use sim::{Brake, Stuck};

/// CPU time without a completed operation after which a simulation is aborted. Simulations that make progress
/// complete one in seconds, even with 1024 vCPUs on 80 CPUs.
const TIMEOUT: Nanos = Nanos::millis(120_000);

/// Watches the progress of one simulation.
#[derive(Debug)]
struct ProgressWatch {
    timeout: Nanos,
    /// The number of operations when it was last found to grow, and the CPU time at that moment.
    last: Mutex<(u64, Nanos)>,
}

/// Ends simulations of the calling thread that make no progress for long, and any once `is_ended` is true.
pub fn brake(is_ended: impl Fn() -> bool + Send + Sync + 'static) -> Brake {
    ProgressWatch::new(TIMEOUT, now()).brake(is_ended, now)
}

impl ProgressWatch {
    const fn new(timeout: Nanos, now: Nanos) -> Self {
        Self { timeout, last: Mutex::new((0, now)) }
    }

    /// Records that `done` operations are complete at `now`. Returns whether progress is too slow.
    fn is_stalled(&self, done: u64, now: Nanos) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if done != last.0 {
            *last = (done, now);
        }
        now.since(last.1) > self.timeout
    }

    /// Creates a brake that takes the time from `now`.
    fn brake(
        self,
        is_ended: impl Fn() -> bool + Send + Sync + 'static,
        now: impl Fn() -> Nanos + Send + Sync + 'static,
    ) -> Brake {
        let seconds = self.timeout.seconds().round() as u64;
        Brake::watching(move |done| match () {
            () if is_ended() => Some(Stuck::Stopped),
            () => self.is_stalled(done, now()).then_some(Stuck::NoTime(seconds)),
        })
    }
}

/// CPU time of the calling thread. Time in which it did not run does not count against the simulation.
fn now() -> Nanos {
    ThreadClock::current().and_then(ThreadClock::read).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_without_progress_counts() {
        let second = |number: u64| Nanos::millis(number * 1_000);
        let watch = ProgressWatch::new(second(10), second(5));
        assert!(!watch.is_stalled(0, second(15)));
        assert!(!watch.is_stalled(1, second(16)), "there is an operation");
        assert!(!watch.is_stalled(1, second(26)));
        assert!(watch.is_stalled(1, second(27)));
    }

    #[test]
    fn brake_reports_timeout_or_interrupt() {
        let second = |number: u64| Nanos::millis(number * 1_000);
        let brake = |at, is_ended| {
            ProgressWatch::new(second(10), second(5)).brake(move || is_ended, move || second(at))
        };
        assert_eq!(brake(15, false).stop_reason(0), None);
        assert_eq!(brake(16, false).stop_reason(0), Some(Stuck::NoTime(10)));
        assert_eq!(brake(16, false).stop_reason(1), None);
        assert_eq!(brake(16, true).stop_reason(0), Some(Stuck::Stopped));
    }
}
