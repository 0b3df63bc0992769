//! How often a waiter may be bypassed.

/// Bound on the acquisitions by other CPUs from a waiter's start to its own acquisition, if `n`
/// CPUs take the lock.
///
/// It is a guarantee: the simulator's cases (`pvticket search --cases`) count bypasses for every lock, and a test fails
/// if one exceeds its bound. A ticketlock with a limited queue has another bound:
/// [`Handoff::bypasses`](crate::Handoff::bypasses).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bypass {
    /// `n - 1`, from the waiter's first step in `lock`: that step determines its place.
    FromCall,
    /// `n - 1`, once the waiter has joined the queue. The steps before that (it checks whether the
    /// lock is free and prepares its node) are few, but others may take the lock any number of
    /// times.
    FromQueue,
    /// `2 * (n - 1)`, once the waiter has joined the queue: every other CPU may be served twice
    /// before it.
    TwiceFromQueue,
    /// `4 * (n - 1)`, once the waiter has joined the queue: all others may be in it, and at most three
    /// newcomers are served between two CPUs of the queue.
    FourTimesFromQueue,
    /// No bound, by design: a CPU that comes later may be faster, again and again.
    Unbounded,
}

impl Bypass {
    /// The bound for `cpus` CPUs.
    pub const fn most(self, cpus: u32) -> Option<u32> {
        match self {
            Self::FromCall | Self::FromQueue => Some(cpus.saturating_sub(1)),
            Self::TwiceFromQueue => Some(2 * cpus.saturating_sub(1)),
            Self::FourTimesFromQueue => Some(4 * cpus.saturating_sub(1)),
            Self::Unbounded => None,
        }
    }

    /// The bound in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FromCall => "at most n-1 others before a waiter",
            Self::FromQueue => "at most n-1 others before a waiter in the queue",
            Self::TwiceFromQueue => "at most 2(n-1) others before a waiter in the queue",
            Self::FourTimesFromQueue => "at most 4(n-1) others before a waiter in the queue",
            Self::Unbounded => "any number of others before a waiter, by design",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_all_others_so_many_times_or_none() {
        assert_eq!(Bypass::FromCall.most(4), Some(3));
        assert_eq!(Bypass::FromQueue.most(0), Some(0));
        assert_eq!(Bypass::TwiceFromQueue.most(4), Some(6));
        assert_eq!(Bypass::FourTimesFromQueue.most(4), Some(12));
        assert_eq!(Bypass::Unbounded.most(4), None);
    }
}
