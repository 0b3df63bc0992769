//! The longest of the operations of all workers.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

/// A maximum in nanoseconds, over the window and the times before and after it.
#[derive(Debug, Default)]
pub struct Longest(AtomicU64);

impl Longest {
    pub fn time<T>(&self, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = operation();
        let took = start.elapsed().as_nanos() as u64;
        // Most operations only read the line that all workers share.
        if took > self.0.load(Relaxed) {
            self.0.fetch_max(took, Relaxed);
        }
        result
    }

    pub fn seconds(&self) -> f64 {
        self.0.load(Relaxed) as f64 / 1e9
    }
}
