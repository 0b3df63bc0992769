//! Simulated time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use base::units::Nanos;

/// A simulated time or duration in picoseconds. A picosecond is much shorter than a cycle, so
/// costs in cycles need almost no rounding. [`Picos::LAST`] is 75 minutes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Picos(pub u64);

impl Picos {
    /// The start of a simulation, or an empty duration.
    pub const ZERO: Picos = Picos(0);
    /// Later than any time.
    pub const NEVER: Picos = Picos(u64::MAX);
    /// The last time that can be simulated. The event queue uses the remaining bits of the word.
    pub const LAST: Picos = Picos((1 << 52) - 2);

    /// Converts nanoseconds to the nearest picosecond. Negative durations become zero.
    pub fn from_nanos(nanos: f64) -> Self {
        Self((nanos * 1e3).round() as u64)
    }

    /// The scheduler's time. It begins at 1 ns because telemetry uses zero for an unknown time.
    pub(crate) const fn to_clock(self) -> Nanos {
        Nanos(self.0 / 1_000 + 1)
    }

    /// The earliest time at which [`Picos::to_clock`] has reached `clock`.
    pub(crate) const fn from_clock(clock: Nanos) -> Self {
        match clock {
            Nanos::NEVER => Self::NEVER,
            Nanos(n) => Self(n.saturating_sub(1).saturating_mul(1_000)),
        }
    }

    /// The duration from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Picos) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The duration in seconds.
    pub const fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl From<Nanos> for Picos {
    fn from(span: Nanos) -> Self {
        Self(span.0.saturating_mul(1_000))
    }
}

impl Add for Picos {
    type Output = Self;

    #[inline(always)]
    fn add(self, span: Self) -> Self {
        Self(self.0 + span.0)
    }
}

impl AddAssign for Picos {
    #[inline(always)]
    fn add_assign(&mut self, span: Self) {
        self.0 += span.0;
    }
}

impl Sub for Picos {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self(self.0 - earlier.0)
    }
}

impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ps if ps < 1_000_000 => write!(f, "{}ns", ps as f64 / 1e3),
            ps if ps < 1_000_000_000 => write!(f, "{}us", ps as f64 / 1e6),
            ps if ps < 1_000_000_000_000 => write!(f, "{}ms", ps as f64 / 1e9),
            ps => write!(f, "{}s", ps as f64 / 1e12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_clock_is_the_first_picosecond_of_its_nanosecond() {
        for clock in [1, 2, 4_000_001].map(Nanos) {
            let at = Picos::from_clock(clock);
            assert_eq!(at.to_clock(), clock);
            assert!(at == Picos::ZERO || Picos(at.0 - 1).to_clock() < clock);
        }
        assert_eq!(Picos::from_clock(Nanos::NEVER), Picos::NEVER);
    }
}
