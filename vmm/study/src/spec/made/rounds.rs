//! How often and how long a bench measures its points.

use std::time::Duration;

use crate::spec::SpecText;

/// The repetitions of a bench and the length of each.
#[derive(Debug)]
pub struct Rounds {
    /// Number of rounds.
    pub count: u32,
    /// Contention before each window.
    pub warm_up: Duration,
    /// Length of each window.
    pub duration: Duration,
    /// Seed of the order and the schedules.
    pub seed: u64,
}

impl Rounds {
    /// Writes them into a spec.
    pub(super) fn put(&self, spec: &mut SpecText) {
        spec.one("repetitions", self.count)
            .one("warm-up", self.warm_up.as_secs_f64())
            .one("seconds", self.duration.as_secs_f64())
            .one("seeds", self.seed);
    }
}
