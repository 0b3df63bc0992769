//! The account of extensions: how many were granted to vCPUs whose slices were over, how they ended, and how
//! long they were needed. It has all its room from the start: to count one allocates nothing.

use hypercalls::histogram::{BUCKETS, bucket, least};
use serde::{Deserialize, Serialize};

use base::{sums, units::Nanos};

/// How extensions ended. One that is still under way is in `granted` only.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionCounts {
    /// vCPUs that were let go on in their locks.
    pub granted: u64,
    /// Those that had released them within the bound.
    pub in_time: u64,
    /// Those that had not: forced off, or gone by themselves later than that.
    pub overrun: u64,
}

sums!(ExtensionCounts: granted, in_time, overrun);

/// Counts of extensions, and a histogram of how long they were needed.
#[derive(Debug, Clone, PartialEq)]
pub struct Extensions {
    /// How they ended.
    pub counts: ExtensionCounts,
    /// By bucket of [`hypercalls::histogram`], in nanoseconds.
    needed: Box<[u64]>,
}

impl Default for Extensions {
    fn default() -> Self {
        Self { counts: ExtensionCounts::default(), needed: vec![0; BUCKETS].into() }
    }
}

impl Extensions {
    /// One begins.
    pub fn grant(&mut self) {
        self.counts.granted += 1;
    }

    /// One has ended, so long after the slice was found to be over. One that did not end `in_time` counts with
    /// the time that it had reached, or only the short ones would be in the histogram.
    pub fn end(&mut self, needed: Nanos, in_time: bool) {
        *if in_time { &mut self.counts.in_time } else { &mut self.counts.overrun } += 1;
        self.needed[bucket(needed.0)] += 1;
    }

    /// The lower bound and the count of each bucket that is not empty, in ascending order.
    pub fn needed(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counted = self.needed.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(bucket, count)| (Nanos(least(bucket)), *count))
    }

    /// Those after the earlier account.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        self.counts = self.counts - earlier.counts;
        self.needed.iter_mut().zip(&earlier.needed).for_each(|(now, then)| *now -= then);
        self
    }

    /// These and the others.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.counts += other.counts;
        self.needed.iter_mut().zip(&other.needed).for_each(|(one, more)| *one += more);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_are_of_the_same_extensions() {
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
