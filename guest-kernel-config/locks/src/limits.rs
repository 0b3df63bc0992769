//! Limits on the number of CPUs of a lock.

use core::fmt;

/// More CPUs would take the lock than it can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyCpus {
    /// Number of CPUs that would take it.
    pub cpus: u32,
    /// Number of CPUs that it can count ([`RawLock::CPUS`](crate::RawLock::CPUS)).
    pub max: u32,
}

impl fmt::Display for TooManyCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CPUs: this lock supports at most {}", self.cpus, self.max)
    }
}

impl core::error::Error for TooManyCpus {}
