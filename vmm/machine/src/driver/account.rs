//! The sums of a schedule up to one moment, and between two moments.

use super::user_driver::{Driver, now};
use base::units::Nanos;
use sched::{accounting::Totals, event::Event, extensions::Extensions, policy::Hits};

/// Sums up to one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// The moment, in monotonic time.
    pub at: Nanos,
    /// The sums, including ongoing intervals up to this moment.
    pub(super) totals: Totals,
    /// Hits and misses, for a policy that injects preemptions.
    pub(super) hits: Option<Hits>,
    /// Slice extensions, for a policy that grants them.
    pub(super) extensions: Option<Extensions>,
}

/// Changes between two moments.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct AccountDelta {
    /// Time between the moments.
    pub time: Nanos,
    /// Sums over that time.
    pub totals: Totals,
    /// Hits and misses in that time, for a policy that injects preemptions.
    pub hits: Option<Hits>,
    /// Slice extensions in that time, for a policy that grants them.
    pub extensions: Option<Extensions>,
}

impl Account {
    /// Returns the changes since `earlier`.
    pub fn since(&self, earlier: &Account) -> AccountDelta {
        let hits = self.hits.zip(earlier.hits).map(|(after, before)| after - before);
        let extensions = self.extensions.clone().zip(earlier.extensions.as_ref());
        AccountDelta {
            time: self.at.since(earlier.at),
            totals: self.totals - earlier.totals,
            hits,
            extensions: extensions.map(|(after, before)| after.since(before)),
        }
    }
}

impl AccountDelta {
    /// The length of the time in seconds.
    pub fn seconds(&self) -> f64 {
        self.time.0 as f64 / 1e9
    }
}

impl std::ops::AddAssign for AccountDelta {
    fn add_assign(&mut self, other: Self) {
        self.time = self.time.after(other.time);
        self.totals += other.totals;
        self.hits = match (self.hits, other.hits) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.extensions = match (self.extensions.take(), other.extensions) {
            (Some(a), Some(b)) => Some(a.plus(&b)),
            (a, b) => a.or(b),
        };
    }
}

impl Driver {
    /// Returns the current account. Ongoing waits and preemptions are included up to this moment;
    /// the next account includes the rest.
    pub fn account(&self) -> Account {
        let mut inner = self.lock();
        let now = now();
        let inner = &mut *inner;
        for slot in 0..inner.core.slots().len() {
            if let Some(vcpu) = inner.core.slots()[slot] {
                inner.core.handle(vcpu, Event::Sampled(self.sample(vcpu)), now);
            }
        }
        let core = &inner.core;
        Account {
            at: now,
            totals: core.accounting().totals_at(now),
            hits: core.policy().hits(),
            extensions: core.policy().extensions().cloned(),
        }
    }
}
