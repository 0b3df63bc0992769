//! How long operations took.

use hypercalls::histogram::{BUCKETS, least};
use serde::{Serialize, Serializer};

use super::timings::Timings;
use crate::units::Nanos;

/// How often operations took how long; of one vCPU or of several.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies {
    /// A count for each bucket of [`hypercalls::histogram`].
    counts: Vec<u64>,
    /// Frequency of the counter that they are in.
    khz: u64,
}

/// What a table says of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: Nanos,
    /// Longer: one in a hundred.
    pub p99: Nanos,
    /// Longer: one in a thousand.
    pub p999: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl Latencies {
    /// Those counted between two readings.
    pub fn between(before: &[u64], after: &[u64], khz: u64) -> Self {
        let grown = |ix: usize| {
            let at = |counts: &[u64]| counts.get(ix).copied().unwrap_or(0);
            // What a guest writes need not grow.
            at(after).saturating_sub(at(before))
        };
        Self { counts: (0..BUCKETS).map(grown).collect(), khz: khz.max(1) }
    }

    /// All together.
    pub fn merge(mut self, other: &Self) -> Self {
        for (count, its) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*its);
        }
        self
    }

    /// None if nothing was timed.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let last = self.counts.iter().rposition(|count| *count > 0)?;
        Some(Percentiles {
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.nanos(last),
        })
    }

    /// The bucket in which a share of all operations has been reached, by its middle.
    fn quantile(&self, share: f64) -> Nanos {
        let all: u64 = self.counts.iter().fold(0, |all, count| all.saturating_add(*count));
        let rank = (all as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0u64;
        let reached = self.counts.iter().position(|count| {
            seen = seen.saturating_add(*count);
            seen >= rank
        });
        self.nanos(reached.unwrap_or(BUCKETS - 1))
    }

    fn nanos(&self, bucket: usize) -> Nanos {
        let end = if bucket + 1 < BUCKETS { least(bucket + 1) } else { least(bucket) };
        let middle = (u128::from(least(bucket)) + u128::from(end)) / 2;
        Nanos(u64::try_from(middle * 1_000_000 / u128::from(self.khz)).unwrap_or(u64::MAX))
    }
}

impl Latencies {
    /// Each bucket's least time in nanoseconds with its count, the empty ones left out.
    pub fn timings(&self) -> Timings {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Timings::from_pairs(counted.map(|(bucket, count)| {
            let nanos = u128::from(least(bucket)) * 1_000_000 / u128::from(self.khz);
            (u64::try_from(nanos).unwrap_or(u64::MAX), *count)
        }))
    }
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.timings().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use hypercalls::histogram::bucket;

    use super::*;

    /// Counts of these times, in ticks.
    fn counts(times: &[(u64, u64)]) -> Vec<u64> {
        let mut counts = vec![0; BUCKETS];
        for (ticks, count) in times {
            counts[bucket(*ticks)] += count;
        }
        counts
    }

    fn is_near(found: Nanos, nanos: f64) -> bool {
        (found.0 as f64 / nanos - 1.0).abs() < 0.06
    }

    #[test]
    fn percentiles_are_where_the_operations_are() {
        // 2 GHz: two ticks a nanosecond.
        let after = counts(&[(200, 985), (20_000, 13), (2_000_000, 2)]);
        let found = Latencies::between(&[], &after, 2_000_000).percentiles().unwrap();
        assert!(is_near(found.p50, 100.0), "{found:?}");
        assert!(is_near(found.p99, 10_000.0), "{found:?}");
        assert!(is_near(found.p999, 1_000_000.0), "{found:?}");
        assert!(is_near(found.max, 1_000_000.0), "{found:?}");
    }

    #[test]
    fn only_what_has_grown_counts() {
        let (before, after) = (counts(&[(200, 100), (9000, 5)]), counts(&[(200, 100), (9000, 7)]));
        let found = Latencies::between(&before, &after, 1_000_000);
        assert!(is_near(found.percentiles().unwrap().p50, 9000.0));
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(json, format!("[[{},2]]", least(bucket(9000))));
        assert_eq!(Latencies::between(&after, &before, 1_000_000).percentiles(), None);
    }

    #[test]
    fn merged_they_are_all_there() {
        let one = |ticks| Latencies::between(&[], &counts(&[(ticks, 1)]), 1_000_000);
        let found = one(100).merge(&one(1_000_000)).percentiles().unwrap();
        assert!(is_near(found.p50, 100.0) && is_near(found.max, 1_000_000.0), "{found:?}");
    }
}
