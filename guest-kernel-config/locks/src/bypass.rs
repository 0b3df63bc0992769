//! Bounds on how often a waiter is bypassed.

use core::fmt;

/// Bound on the acquisitions by other CPUs between a waiter's start and its own acquisition, if `n`
/// CPUs take the lock.
///
/// This is a guarantee: the simulator's cases (`pvticket search --cases`) count bypasses for every
/// lock, and a test fails if a lock exceeds its bound. For a ticketlock with a limited queue see
/// [`Handoff::bypasses`](crate::Handoff::bypasses).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bypass {
    /// `n - 1`, from the waiter's first step in `lock`: that step determines its place.
    FromCall,
    /// `n - 1`, once the waiter has joined the queue. The steps before that (checking whether the
    /// lock is free, preparing its node) are few, but other CPUs may take the lock any number of
    /// times during them.
    FromQueue,
    /// This factor times `n - 1`, once the waiter has joined the queue: newcomers, or waiters that
    /// came later, are served between the CPUs ahead of it.
    TimesFromQueue(u32),
    /// `n - 1`, once the waiter has joined the queue, if from then on it runs and does not yield.
    /// Otherwise no bound.
    WhileRunning,
    /// The present holder, once the waiter spins as the head of the queue and has kept newcomers out,
    /// until it loses its CPU or is about to halt. Otherwise no bound.
    WhileHead,
    /// No bound, by design: later arrivals may be faster every time.
    Unbounded,
}

impl Bypass {
    /// The bound for `cpus` CPUs; `None` if unbounded, at least for a waiter that does not run.
    pub const fn bound(self, cpus: u32) -> Option<u32> {
        match self {
            Self::FromCall | Self::FromQueue => Some(cpus.saturating_sub(1)),
            Self::TimesFromQueue(times) => Some(times * cpus.saturating_sub(1)),
            Self::WhileRunning | Self::WhileHead | Self::Unbounded => None,
        }
    }
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FromCall => f.write_str("at most n-1 others before a waiter"),
            Self::FromQueue => f.write_str("at most n-1 others before a waiter in the queue"),
            Self::TimesFromQueue(times) => {
                write!(f, "at most {times}(n-1) others before a waiter in the queue")
            }
            Self::WhileRunning => f.write_str(
                "at most n-1 others before a waiter in the queue that runs all the time",
            ),
            Self::WhileHead => {
                f.write_str("no others before a head of the queue that spins, except the holder")
            }
            Self::Unbounded => f.write_str("any number of others before a waiter, by design"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_from_the_number_of_cpus() {
        assert_eq!(Bypass::FromCall.bound(4), Some(3));
        assert_eq!(Bypass::FromQueue.bound(0), Some(0));
        assert_eq!(Bypass::TimesFromQueue(2).bound(4), Some(6));
        for conditional in [Bypass::WhileRunning, Bypass::WhileHead, Bypass::Unbounded] {
            assert_eq!(conditional.bound(4), None);
        }
    }
}
