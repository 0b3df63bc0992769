//! Histograms of the durations of operations.
//!
//! Waits still in progress at the end of the window count with the length reached by then: a stuck
//! vCPU has no others. A vCPU that is stuck for 20 ms waits once while others wait thousands of
//! times, so that no percentile over operations shows it (coordinated omission); hence the
//! percentiles of the time waited.

use hypercalls::histogram::{BUCKETS, bucket, floor};
use serde::Serialize;

use super::timings::Timings;
use base::{counters::WaitCounts, units::Nanos};

/// Histogram of the durations of operations, of one vCPU or several.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies {
    /// One count per bucket of [`hypercalls::histogram`].
    counts: Vec<u64>,
    /// Waits still in progress at the end of the window.
    open: u64,
    /// Frequency of the time stamp counter, in kHz.
    khz: u64,
}

/// Percentiles of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The 99.9th percentile.
    pub p999: Nanos,
    /// The longest.
    pub max: Nanos,
    /// Percentiles over the time waited instead of over the waits.
    pub by_time: TimeShares,
}

/// Percentiles of the time waited, over all vCPUs: each wait is weighted by its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimeShares {
    /// At most half of the time waited is spent in longer waits.
    pub p50: Nanos,
    /// At most one hundredth is spent in longer waits.
    pub p99: Nanos,
    /// At most one thousandth is spent in longer waits.
    pub p999: Nanos,
}

impl TimeShares {
    /// Computes the percentiles from the lengths of waits, ascending, with their counts. None if the
    /// total time is zero.
    pub fn from_waits(waits: impl Iterator<Item = (Nanos, u64)> + Clone) -> Option<Self> {
        let time = |(nanos, count): (Nanos, u64)| u128::from(nanos.0) * u128::from(count);
        let total = waits.clone().map(time).fold(0, u128::saturating_add);
        // The shortest length such that at most 1/`share` of the time is spent in longer waits.
        let quantile = |share: u128| {
            let mut sum = 0u128;
            let mut lengths = waits.clone().filter(|wait| time(*wait) > 0);
            lengths.find_map(|wait| {
                sum = sum.saturating_add(time(wait));
                (total.saturating_sub(sum) <= total / share).then_some(wait.0)
            })
        };
        Some(Self { p50: quantile(2)?, p99: quantile(100)?, p999: quantile(1000)? })
    }
}

impl Latencies {
    /// Returns the waits counted between two readings, and the waits still in progress at the second,
    /// which have lasted `open` ticks so far.
    pub fn between(before: &WaitCounts, after: &WaitCounts, open: &[u64], khz: u64) -> Self {
        let increase = |ix: usize| {
            let at = |waits: &WaitCounts| waits.counts.get(ix).copied().unwrap_or(0);
            // A guest's counts are untrusted and may decrease.
            at(after).saturating_sub(at(before))
        };
        let mut counts: Vec<u64> = (0..BUCKETS).map(increase).collect();
        open.iter().for_each(|ticks| counts[bucket(*ticks)] += 1);
        Self { counts, open: open.len() as u64, khz: khz.max(1) }
    }

    /// Adds the counts of `other`.
    pub fn merge(mut self, other: &Self) -> Self {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.open += other.open;
        self
    }

    /// Returns how many waits were still in progress at the end of the window.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Returns the lower bound in nanoseconds and the count of each nonempty bucket.
    pub fn timings(&self) -> Timings {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Timings::from_pairs(counted.map(|(bucket, count)| {
            let nanos = u128::from(floor(bucket)) * 1_000_000 / u128::from(self.khz);
            (u64::try_from(nanos).unwrap_or(u64::MAX), *count)
        }))
    }
}

#[cfg(test)]
mod tests {
    use hypercalls::histogram::bucket;

    use super::*;

    /// Builds a histogram of these times in ticks, with their counts.
    fn counts(times: &[(u64, u64)]) -> WaitCounts {
        let mut counts = vec![0; BUCKETS];
        for (ticks, count) in times {
            counts[bucket(*ticks)] += count;
        }
        WaitCounts { counts, pending: Vec::new() }
    }

    fn latencies(times: &[(u64, u64)], open: &[u64], khz: u64) -> Latencies {
        Latencies::between(&counts(&[]), &counts(times), open, khz)
    }

    fn percentiles(waits: &Latencies) -> Percentiles {
        waits.timings().percentiles().unwrap()
    }

    fn is_near(time: Nanos, nanos: f64) -> bool {
        (time.0 as f64 / nanos - 1.0).abs() < 0.07
    }

    #[test]
    fn percentiles_match_the_durations() {
        // 2 GHz: two ticks per nanosecond.
        let waits = latencies(&[(200, 985), (20_000, 13), (2_000_000, 2)], &[], 2_000_000);
        let times = percentiles(&waits);
        assert!(is_near(times.p50, 100.0), "{times:?}");
        assert!(is_near(times.p99, 10_000.0), "{times:?}");
        assert!(is_near(times.p999, 1_000_000.0), "{times:?}");
        assert!(is_near(times.max, 1_000_000.0), "{times:?}");
    }

    #[test]
    fn only_new_waits_count() {
        let (before, after) = (counts(&[(200, 100), (9000, 5)]), counts(&[(200, 100), (9000, 7)]));
        let waits = Latencies::between(&before, &after, &[], 1_000_000);
        assert!(is_near(percentiles(&waits).p50, 9000.0));
        let json = serde_json::to_string(&waits.timings()).unwrap();
        assert_eq!(json, format!("[[{},2]]", floor(bucket(9000))));
        assert_eq!(
            Latencies::between(&after, &before, &[], 1_000_000).timings().percentiles(),
            None
        );
    }

    #[test]
    fn merging_keeps_all_waits() {
        let single = |ticks| latencies(&[(ticks, 1)], &[], 1_000_000);
        let times = percentiles(&single(100).merge(&single(1_000_000)));
        assert!(is_near(times.p50, 100.0) && is_near(times.max, 1_000_000.0), "{times:?}");
    }

    /// A vCPU waits 100 ms once, while three others wait 1 us a million times each: one of three
    /// million waits, but a thirtieth of the time waited. Regression: only the maximum showed it.
    #[test]
    fn percentiles_by_time_show_a_stuck_vcpu() {
        let times = latencies(&[(1_000, 3_000_000), (100_000_000, 1)], &[], 1_000_000);
        let times = percentiles(&times);
        assert!(is_near(times.p999, 1e3), "{times:?}");
        assert!(is_near(times.by_time.p50, 1e3), "{times:?}");
        assert!(is_near(times.by_time.p99, 1e8) && is_near(times.by_time.p999, 1e8), "{times:?}");
    }

    #[test]
    fn shares_of_time_by_hand() {
        let waits = |pairs: &[(u64, u64)]| {
            TimeShares::from_waits(pairs.iter().map(|(nanos, count)| (Nanos(*nanos), *count)))
        };
        // 100 ns in waits of 1 ns and 100 ns in a wait of 100 ns: half the time is in the latter.
        let half = waits(&[(1, 100), (100, 1)]).unwrap();
        assert_eq!((half.p50, half.p99), (Nanos(1), Nanos(100)));
        let more = waits(&[(1, 99), (100, 1)]).unwrap();
        assert_eq!(more.p50, Nanos(100), "a little more than half");
        // Exponential lengths with mean 1000: half of the time is in waits longer than 1678, and 0.01
        // in waits longer than 6638, by (1 + x) exp(-x), while half of the waits are longer than 693.
        let longer = |ix: u64| (1e9 * (-(ix as f64) / 1000.0).exp()) as u64;
        let pairs: Vec<_> = (1..40_000).map(|ix| (ix, longer(ix - 1) - longer(ix))).collect();
        let shares = waits(&pairs).unwrap();
        let is_about = |time: Nanos, nanos: f64| (time.0 as f64 / nanos - 1.0).abs() < 0.01;
        assert!(is_about(shares.p50, 1678.0) && is_about(shares.p99, 6638.0), "{shares:?}");
        assert_eq!((waits(&[]), waits(&[(0, 5)])), (None, None));
    }

    /// Regression: a wait that did not end was in no figure.
    #[test]
    fn open_waits_count_with_their_length() {
        let waits = latencies(&[(1_000, 500)], &[400_000_000, 300_000_000], 1_000_000);
        let times = percentiles(&waits);
        assert_eq!(waits.open(), 2);
        assert!(is_near(times.p50, 1e3) && is_near(times.max, 4e8), "{times:?}");
        assert!(is_near(times.by_time.p50, 4e8), "{times:?}");
        let alone = latencies(&[], &[7_000_000], 1_000_000);
        assert!(is_near(percentiles(&alone).p50, 7e6), "nothing else was there");
        assert_eq!(waits.merge(&alone).open(), 3);
    }
}
