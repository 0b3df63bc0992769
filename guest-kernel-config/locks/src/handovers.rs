//! Counts the handovers of a lock that is handed from CPU to CPU: for CPUs that wait for a
//! release, because such a lock may never be free.

use crate::sync::{AtomicU16, Ordering};

/// Number of handovers so far; wraps. Written by the holder alone.
#[derive(Debug, Default)]
pub(crate) struct Handovers(AtomicU16);

impl Handovers {
    pub(crate) const fn new() -> Self {
        Self(AtomicU16::new(0))
    }

    /// Counts a handover to the calling CPU.
    ///
    /// Release: a CPU that sees the count sees the previous holder's writes.
    #[inline]
    pub(crate) fn record(&self) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(next, Ordering::Release);
    }

    /// Waits until the lock has been free at some moment, or has been handed over. `is_free`
    /// loads with acquire ordering.
    pub(crate) fn wait_until_released(&self, is_free: impl Fn() -> bool, mut pause: impl FnMut()) {
        let first = self.0.load(Ordering::Acquire);
        while !is_free() && self.0.load(Ordering::Acquire) == first {
            pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_at_the_next_handover() {
        let handovers = Handovers(AtomicU16::new(u16::MAX));
        for _ in 0..3 {
            let mut spins = 0;
            let pause = || {
                spins += 1;
                handovers.record();
            };
            handovers.wait_until_released(|| false, pause);
            assert_eq!(spins, 1);
        }
    }
}
