//! How often a waiter may be passed over.

/// The most acquisitions by other CPUs between a waiter and its own, if `n` CPUs use the lock.
///
/// It is a promise: the stepper (`sim/`) counts for every lock, and its test fails if one exceeds
/// its bound. What [`Handoff::queue`](crate::Handoff) makes of it is said there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bypass {
    /// `n - 1`, from the waiter's first step in `lock`: that step gives it its place.
    FromCall,
    /// `n - 1`, from when the waiter has joined the queue. Its steps up to there (it looks whether
    /// the lock is free and prepares its node) are few, but each may be passed any number of times.
    FromQueue,
    /// None, by design: a CPU that comes later may be faster, again and again.
    Unbounded,
}

impl Bypass {
    /// The bound with `cpus` CPUs.
    pub const fn most(self, cpus: u32) -> Option<u32> {
        match self {
            Self::FromCall | Self::FromQueue => Some(cpus.saturating_sub(1)),
            Self::Unbounded => None,
        }
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FromCall => "at most n-1 others before a waiter",
            Self::FromQueue => "at most n-1 others before a waiter in the queue",
            Self::Unbounded => "any number of others before a waiter, by design",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_all_others_once_or_none() {
        assert_eq!(Bypass::FromCall.most(4), Some(3));
        assert_eq!(Bypass::FromQueue.most(0), Some(0));
        assert_eq!(Bypass::Unbounded.most(4), None);
    }
}
