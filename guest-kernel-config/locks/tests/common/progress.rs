//! When a wakeup counts as lost.

use std::time::{Duration, Instant};

/// How long nothing may happen. A busy machine delays each handoff by milliseconds, so that a test may take minutes
/// there.
const PATIENCE: Duration = Duration::from_secs(600);

/// The last change of a count of what happens: locks taken, kicks, threads that have finished.
pub struct Progress {
    count: u64,
    at: Instant,
}

impl Progress {
    pub fn new() -> Self {
        Self { count: 0, at: Instant::now() }
    }

    /// Has the count stayed the same for so long that a wakeup is lost?
    pub fn has_ended(&mut self, count: u64) -> bool {
        if count != self.count {
            (self.count, self.at) = (count, Instant::now());
        }
        self.at.elapsed() > PATIENCE
    }
}
