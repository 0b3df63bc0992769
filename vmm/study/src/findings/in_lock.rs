//! Preemptions of holders and waiters, by the source of the lock states.

use serde::{Serialize, Serializer};

/// Preemptions in a lock, per measured second.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct InLock {
    /// Preemptions of lock holders.
    pub lhp: f64,
    /// Preemptions of the next in line.
    pub lwp: f64,
    /// Preemptions of waiters further back in a queue.
    pub queued: f64,
    /// Whether the lock state was observed and not published by the guest, so that most holders are missing.
    pub is_observed: bool,
}

impl InLock {
    /// The prefix of the names of observed figures; empty for published states.
    pub const fn prefix(&self) -> &'static str {
        if self.is_observed { "observed " } else { "" }
    }
}

/// Observed figures have names of their own.
impl Serialize for InLock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let prefix = self.prefix().replace(' ', "_");
        let values = [("lhp", self.lhp), ("lwp", self.lwp), ("queued", self.queued)];
        serializer.collect_map(values.map(|(name, value)| (format!("{prefix}{name}"), value)))
    }
}
