//! Ctrl-C, seen by whoever waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// Longest sleep without a look at the flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A flag that ends an experiment early. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that nobody has raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// The flag itself, for a signal handler to set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Has it been raised?
    pub fn raised(&self) -> bool {
        self.0.load(SeqCst)
    }

    /// Sleeps until `deadline`; `false`: interrupted before.
    pub fn sleep_until(&self, deadline: Instant) -> bool {
        loop {
            if self.raised() {
                return false;
            }
            match deadline.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => thread::sleep(left.min(LOOK_EVERY)),
                _ => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_to_the_end_unless_raised() {
        let interrupt = Interrupt::new();
        let start = Instant::now();
        assert!(interrupt.sleep_until(start + Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(20));
        interrupt.flag().store(true, SeqCst);
        assert!(!interrupt.clone().sleep_until(start + Duration::from_secs(3600)));
    }
}
