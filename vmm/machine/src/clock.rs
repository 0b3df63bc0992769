//! The monotonic clock, comparable across processes, and the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use base::units::Nanos;
use kvm::sys::clock;

/// Milliseconds since 1970-01-01 00:00 UTC.
pub fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A reading of `CLOCK_MONOTONIC`, which all processes of a host share: a parent may subtract its
/// own reading from its child's. (`std::time::Instant` uses the same clock but hides the value.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Nanos);

impl Moment {
    /// The current time.
    pub fn now() -> Self {
        Self(clock::monotonic())
    }

    /// Wraps a reading received from another process.
    pub const fn from_nanos(reading: Nanos) -> Self {
        Self(reading)
    }

    /// Nanoseconds since the clock's epoch, for transfer to another process.
    pub const fn nanos(self) -> Nanos {
        self.0
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Moment) -> Nanos {
        Nanos(self.0.0.saturating_sub(earlier.0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_round_trip_and_are_ordered() {
        let earlier = Moment::now();
        let later = Moment::now();
        assert!(earlier <= later);
        assert_eq!(Moment::from_nanos(earlier.nanos()), earlier);
        assert_eq!(later.since(earlier).0, later.nanos().0 - earlier.nanos().0);
        assert_eq!(Moment::from_nanos(Nanos(1)).since(later), Nanos(0));
    }
}
