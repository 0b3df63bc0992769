//! A limit on the CPUs inside a restricted lock that adapts to handover times.

use crate::handoff::LET_IN_EVERY;
use crate::sync::{AtomicU16, AtomicU64, MAX_CPUS, Ordering};

/// A handover that takes longer than this, in [`Pv::ticks`](crate::Pv::ticks), went to a CPU that was
/// not running: about 10 us.
const LATE_TICKS: u64 = 25_000;

/// The holder and one waiter: with room for one CPU only, each release would hand over by a kick.
pub(crate) const MIN_LIMIT: u16 = 2;

/// The limit of [`Handoff::ADAPTIVE`](crate::Handoff::ADAPTIVE): additive increase, multiplicative
/// decrease.
///
/// - If a waiter gets the lock more than [`LATE_TICKS`] after its release, the limit becomes half of
///   itself, or half the number of CPUs then inside if lower, but at least [`MIN_LIMIT`].
/// - It grows by one every 8192 acquisitions, about one time slice: a limit that is too large costs
///   the rest of a slice.
///
/// Only the holder calls the methods other than [`limit`](Self::limit).
#[derive(Debug, Default)]
pub(crate) struct AdaptiveLimit {
    /// Zero: no limit yet.
    limit: AtomicU16,
    /// Acquisitions since the limit last changed.
    taken: AtomicU16,
    /// Time of the last release.
    released: AtomicU64,
}

impl AdaptiveLimit {
    pub(crate) const fn new() -> Self {
        let [limit, taken] = [const { AtomicU16::new(0) }; 2];
        Self { limit, taken, released: AtomicU64::new(0) }
    }

    /// Number of CPUs that may be inside; at least [`MIN_LIMIT`].
    #[inline]
    pub(crate) fn limit(&self) -> u16 {
        match self.limit.load(Ordering::Relaxed) {
            0 => MAX_CPUS as u16,
            limit => limit,
        }
    }

    #[inline]
    pub(crate) fn record_release(&self, now: u64) {
        self.released.store(now, Ordering::Relaxed);
    }

    /// Records an acquisition at `now`, with `inside` CPUs inside. `waited`: whether the CPU waited
    /// inside for the preceding release.
    #[inline]
    pub(crate) fn record_acquisition(&self, now: u64, waited: bool, inside: u16) {
        if waited && now.saturating_sub(self.released.load(Ordering::Relaxed)) > LATE_TICKS {
            self.taken.store(0, Ordering::Relaxed);
            let half = inside.min(self.limit()) / 2;
            return self.limit.store(half.max(MIN_LIMIT), Ordering::Relaxed);
        }
        let taken = self.taken.load(Ordering::Relaxed) + 1;
        self.taken.store(taken % LET_IN_EVERY, Ordering::Relaxed);
        if taken == LET_IN_EVERY {
            let more = self.limit().saturating_add(1).min(MAX_CPUS as u16);
            self.limit.store(more, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_handover_halves_the_limit() {
        let limit = AdaptiveLimit::new();
        assert_eq!(limit.limit(), MAX_CPUS as u16);
        for (inside, expected) in [(8, 4), (9, 2), (2, 2), (1, 2)] {
            limit.record_release(100);
            limit.record_acquisition(100 + LATE_TICKS, true, inside);
            limit.record_acquisition(101 + LATE_TICKS, false, inside);
            assert!(limit.limit() > expected || expected == MIN_LIMIT, "in time, or after no wait");
            limit.record_acquisition(101 + LATE_TICKS, true, inside);
            assert_eq!(limit.limit(), expected);
        }
    }

    #[test]
    fn the_limit_grows_by_one_per_period() {
        let limit = AdaptiveLimit::new();
        limit.record_acquisition(1 + LATE_TICKS, true, 2);
        for expected in [3, 4, 5] {
            for _ in 0..LET_IN_EVERY {
                assert_eq!(limit.limit(), expected - 1);
                limit.record_acquisition(0, true, 1);
            }
            assert_eq!(limit.limit(), expected);
        }
    }
}
