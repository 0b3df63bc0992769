//! The account of time-slice extensions: how many were granted to vCPUs whose slices had expired, how they
//! ended, and how long they were needed. All memory is allocated at the start, so counting allocates nothing.

use hypercalls::histogram::{BUCKETS, bucket, floor};
use serde::{Deserialize, Serialize};

use base::{sums, units::Nanos};

/// How extensions ended. An extension in progress counts in `granted` only.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionCounts {
    /// Extensions granted to lock holders.
    pub granted: u64,
    /// Extensions whose vCPU released its locks within the bound.
    pub in_time: u64,
    /// Extensions whose vCPU did not, or left the slot after the bound.
    pub overrun: u64,
}

sums!(ExtensionCounts: granted, in_time, overrun);

/// Counts of extensions, and a histogram of the time needed.
#[derive(Debug, Clone, PartialEq)]
pub struct Extensions {
    /// How the extensions ended.
    pub counts: ExtensionCounts,
    /// Number of extensions by bucket of nanoseconds needed ([`hypercalls::histogram`]).
    needed: Box<[u64]>,
}

impl Default for Extensions {
    fn default() -> Self {
        Self { counts: ExtensionCounts::default(), needed: vec![0; BUCKETS].into() }
    }
}

impl Extensions {
    /// Counts an extension that begins.
    pub fn grant(&mut self) {
        self.counts.granted += 1;
    }

    /// Counts an extension that ended `needed` after its slice was found expired. If not `in_time`, the time
    /// it reached still counts, or the histogram would contain only short extensions.
    pub fn end(&mut self, needed: Nanos, in_time: bool) {
        *if in_time { &mut self.counts.in_time } else { &mut self.counts.overrun } += 1;
        self.needed[bucket(needed.0)] += 1;
    }

    /// Returns the lower bound and the count of each nonempty bucket, in ascending order.
    pub fn needed(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counted = self.needed.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(bucket, count)| (Nanos(floor(bucket)), *count))
    }

    /// Returns the account without the extensions in `earlier`.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        self.counts = self.counts - earlier.counts;
        self.needed.iter_mut().zip(&earlier.needed).for_each(|(now, then)| *now -= then);
        self
    }

    /// Returns the sum of both accounts.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.counts += other.counts;
        self.needed.iter_mut().zip(&other.needed).for_each(|(sum, count)| *sum += count);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_and_plus_are_inverse() {
        let mut early = Extensions::default();
        early.grant();
        early.end(Nanos(350), true);
        let mut late = early.clone();
        late.grant();
        late.grant();
        late.end(Nanos(9_000), false);
        assert_eq!(late.counts, ExtensionCounts { granted: 3, in_time: 1, overrun: 1 });
        let after = late.clone().since(&early);
        assert_eq!(after.counts, ExtensionCounts { granted: 2, in_time: 0, overrun: 1 });
        let [(nanos, 1)] = after.needed().collect::<Vec<_>>()[..] else { panic!("{after:?}") };
        assert!((8_500..=9_000).contains(&nanos.0), "{nanos}");
        assert_eq!(after.plus(&early), late);
    }
}
