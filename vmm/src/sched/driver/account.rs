//! What a schedule has done up to one moment, and between two.

use super::{Driver, now};
use crate::{
    sched::{accounting::Totals, event::Event, policy::Hits},
    units::Nanos,
};

/// Everything up to a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Account {
    /// The moment.
    pub at: Nanos,
    /// The sums, with what goes on at that moment in them up to it.
    totals: Totals,
    /// Of a policy that aims.
    hits: Option<Hits>,
}

/// What happened between two moments.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The time between them.
    pub time: Nanos,
    /// Sums over that time.
    pub totals: Totals,
    /// The same of a policy that aims.
    pub hits: Option<Hits>,
}

impl Account {
    /// What has happened since `earlier`.
    pub fn since(&self, earlier: &Account) -> Measured {
        let hits = self.hits.zip(earlier.hits).map(|(now, then)| Hits {
            hits: now.hits - then.hits,
            misses: now.misses - then.misses,
        });
        Measured { time: self.at.since(earlier.at), totals: self.totals - earlier.totals, hits }
    }
}

impl Measured {
    /// How long that was, in seconds.
    pub fn seconds(&self) -> f64 {
        self.time.0 as f64 / 1e9
    }
}

impl std::ops::AddAssign for Measured {
    fn add_assign(&mut self, other: Self) {
        self.time = self.time.after(other.time);
        self.totals += other.totals;
        self.hits = match (self.hits, other.hits) {
            (Some(a), Some(b)) => Some(Hits { hits: a.hits + b.hits, misses: a.misses + b.misses }),
            (a, b) => a.or(b),
        };
    }
}

impl Driver {
    /// The account now. What is going on is in it up to this moment: the rest of a wait, or of a
    /// preemption, belongs to the time after.
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
        Account { at: now, totals: core.accounting().totals_at(now), hits: core.policy().hits() }
    }
}
