//! A stored histogram of durations: pairs of nanoseconds and counts.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::latencies::{Percentiles, TimeShares};
use base::units::Nanos;
use sched::extensions::Extensions;

/// The longest duration that can be resolved: 1000 s.
const MAX_NANOS: u64 = 1_000_000_000_000;

/// Durations in nanoseconds with their counts, in ascending order without duplicates.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timings(Vec<(u64, u64)>);

impl Timings {
    /// Converts a histogram.
    pub fn from_histogram(histogram: &Histogram<u64>) -> Self {
        let values = histogram.iter_recorded();
        Self(values.map(|value| (value.value_iterated_to(), value.count_at_value())).collect())
    }

    /// Creates a histogram from pairs of nanoseconds and counts, in ascending order.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// Returns the times for which extensions of slices were needed.
    pub fn needed(extensions: &Extensions) -> Self {
        Self::from_pairs(extensions.needed().map(|(nanos, count)| (nanos.0, count)))
    }

    /// Returns the pairs of nanoseconds and counts.
    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Whether there are no durations.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, count)| *count == 0)
    }

    /// Converts to a histogram with two significant digits, an error below 1 %. Longer durations
    /// than can be resolved count as the longest.
    pub fn histogram(&self) -> Histogram<u64> {
        // These bounds are valid, so the default is never used.
        let mut histogram = Histogram::new_with_bounds(1, MAX_NANOS, 2)
            .unwrap_or_else(|_| Histogram::new(2).expect("2"));
        // The histogram adds up counts in 64 bits, and a file may contain any counts.
        let total: u128 = self.0.iter().map(|(_, count)| u128::from(*count)).sum();
        let excess = 65u32.saturating_sub(total.leading_zeros());
        for (nanos, count) in &self.0 {
            histogram.saturating_record_n((*nanos).max(1), count >> excess);
        }
        histogram
    }

    /// Merges several histograms.
    pub fn merged<'a>(timings: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut pairs: Vec<(u64, u64)> = timings.into_iter().flat_map(|t| t.0.clone()).collect();
        pairs.sort_unstable();
        pairs.dedup_by(|(next, more), (nanos, count)| {
            let is_same = next == nanos;
            if is_same {
                *count = count.saturating_add(*more);
            }
            is_same
        });
        Self(pairs)
    }

    /// Returns the percentiles; None if there are no durations.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let histogram = self.histogram();
        let waits = self.0.iter().map(|(nanos, count)| (Nanos((*nanos).max(1)), *count));
        Some(Percentiles {
            by_time: TimeShares::from_waits(waits)?,
            p50: Nanos(histogram.value_at_quantile(0.5)),
            p99: Nanos(histogram.value_at_quantile(0.99)),
            p999: Nanos(histogram.value_at_quantile(0.999)),
            max: Nanos(histogram.max()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_round_trip() {
        let mut histogram = Timings::default().histogram();
        for (nanos, count) in [(100, 985), (10_000, 13), (1_000_000, 2)] {
            histogram.record_n(nanos, count).unwrap();
        }
        let timings = Timings::from_histogram(&histogram);
        assert_eq!(timings.pairs().iter().map(|(_, count)| count).sum::<u64>(), 1000);
        let text = serde_json::to_string(&timings).unwrap();
        assert_eq!(serde_json::from_str::<Timings>(&text).unwrap(), timings);
        let times = timings.percentiles().unwrap();
        for (time, nanos) in [(times.p50, 100.0), (times.p99, 1e4), (times.p999, 1e6)] {
            assert!((time.0 as f64 / nanos - 1.0).abs() < 0.01, "{time} is not {nanos}");
        }
        assert_eq!(Timings::default().percentiles(), None);
    }

    #[test]
    fn absurd_counts_keep_their_shares() {
        let timings = Timings::from_pairs([(10, u64::MAX), (100, u64::MAX), (1_000, u64::MAX)]);
        let times = timings.percentiles().unwrap();
        assert_eq!((times.p50, times.p99), (Nanos(100), Nanos(1_003)));
    }

    #[test]
    fn merged_timings_are_sorted_and_unique() {
        let [a, b] = [[(5, 1), (7, 2)], [(1, 4), (7, 8)]].map(Timings::from_pairs);
        assert_eq!(Timings::merged([&a, &b]).pairs(), [(1, 4), (5, 1), (7, 10)]);
    }
}
