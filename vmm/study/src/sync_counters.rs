//! Counts of mutexes, per-CPU counters and lockrefs in addition to their operations.

use std::ops::AddAssign;

use hypercalls::payload::SlotFigures;
use locks::Family;
use serde::{Deserialize, Serialize};

/// Counts of one run, summed over the vCPUs. See [`hypercalls::payload::Slot`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkCounts {
    /// Atomic read-modify-writes of a mutex's lock word.
    pub rmw: u64,
    /// Atomic read-modify-writes of the state that decides which waiter of a mutex may spin: a queue's
    /// tail, or the field for a single spinner.
    pub beside: u64,
    /// Spin iterations of a mutex's optimistic spinners, and of a counter's additions that had to wait.
    pub spins: u64,
    /// Failed compare-exchanges of a lockref.
    pub retries: u64,
    /// Sums of a counter.
    pub sums: u64,
    /// The largest error of a counter's sum.
    pub deviation: u64,
    /// Reads by the reader of a hot cache line.
    pub looks: u64,
}

impl WorkCounts {
    /// Returns the counts in the slots of all vCPUs between two readings; `deviation` is the largest
    /// error until the later reading.
    pub fn between(before: &[SlotFigures], after: &[SlotFigures]) -> Self {
        // Saturating because a guest's counts are untrusted and may decrease.
        let increase = |figure: fn(&SlotFigures) -> u64| {
            let slots = before.iter().zip(after);
            let diffs = slots.map(|(before, after)| figure(after).saturating_sub(figure(before)));
            diffs.fold(0, u64::saturating_add)
        };
        Self {
            rmw: increase(|slot| slot.rmw),
            beside: increase(|slot| slot.spinner_rmw),
            spins: increase(|slot| slot.spins),
            retries: increase(|slot| slot.retries),
            sums: increase(|slot| slot.sums),
            deviation: after.iter().map(|slot| slot.deviation).max().unwrap_or(0),
            looks: increase(|slot| slot.reads),
        }
    }
}

impl AddAssign for WorkCounts {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.rmw, other.rmw);
        add(&mut self.beside, other.beside);
        add(&mut self.spins, other.spins);
        add(&mut self.retries, other.retries);
        add(&mut self.sums, other.sums);
        add(&mut self.looks, other.looks);
        self.deviation = self.deviation.max(other.deviation);
    }
}

/// Counts over all repetitions of a point, per operation or per second; `deviation` is the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorkRow {
    /// Name of the lock system's family.
    pub family: &'static str,
    /// Atomic read-modify-writes of a mutex's lock word per acquisition, including the release.
    pub rmw: f64,
    /// Atomic read-modify-writes of a mutex's lock word beyond the two of an uncontended acquisition, per
    /// contended acquisition.
    pub rmw_each_wait: f64,
    /// Atomic read-modify-writes of the state that decides which waiter may spin, per acquisition.
    pub beside: f64,
    /// Spin iterations of optimistic spinners, or of additions that had to wait, per operation.
    pub spins: f64,
    /// Failed compare-exchanges per change of a lockref's count.
    pub retries: f64,
    /// Sums per second.
    pub sums: f64,
    /// The largest error of a sum.
    pub deviation: u64,
    /// Reads of a hot cache line per second.
    pub looks: f64,
}

impl WorkRow {
    /// Computes the row from the counts of `operations` operations in `seconds` seconds; `slow` of the
    /// operations were contended.
    pub fn new(
        family: Family,
        counts: WorkCounts,
        operations: u64,
        slow: u64,
        seconds: f64,
    ) -> Self {
        let ratio =
            |count: u64, total: u64| if total > 0 { count as f64 / total as f64 } else { 0.0 };
        let per_op = |count| ratio(count, operations);
        // A lockref operation is a get and a put.
        let changes = if family == Family::Lockref { 2.0 } else { 1.0 };
        Self {
            family: family.name(),
            rmw: per_op(counts.rmw),
            rmw_each_wait: ratio(counts.rmw.saturating_sub(operations.saturating_mul(2)), slow),
            beside: per_op(counts.beside),
            spins: per_op(counts.spins),
            retries: per_op(counts.retries) / changes,
            sums: counts.sums as f64 / seconds,
            deviation: counts.deviation,
            looks: counts.looks as f64 / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_increases_of_the_slots() {
        let [idle, first] = [0, 3].map(|rmw| SlotFigures { rmw, ..SlotFigures::default() });
        let later = SlotFigures { rmw: 5, deviation: 9, ..first };
        let counts = WorkCounts::between(&[first, later], &[later, idle]);
        assert_eq!(counts, WorkCounts { rmw: 2, deviation: 9, ..WorkCounts::default() });
    }

    #[test]
    fn sums_keep_the_maximum_deviation() {
        let mut sum = WorkCounts { rmw: 1, deviation: 7, ..WorkCounts::default() };
        sum += WorkCounts { rmw: 2, deviation: 5, looks: 1, ..WorkCounts::default() };
        assert_eq!(sum, WorkCounts { rmw: 3, deviation: 7, looks: 1, ..WorkCounts::default() });
    }

    #[test]
    fn lockref_operations_count_two_changes() {
        let counts = WorkCounts { retries: 30, looks: 8, ..WorkCounts::default() };
        let row = WorkRow::new(Family::Lockref, counts, 10, 0, 2.0);
        assert_eq!((row.retries, row.looks), (1.5, 4.0));
        assert_eq!(WorkRow::new(Family::Mutex, counts, 0, 0, 2.0).retries, 0.0);
    }

    #[test]
    fn rmw_per_wait_excludes_uncontended_cost() {
        let counts = WorkCounts { rmw: 230, ..WorkCounts::default() };
        let row = WorkRow::new(Family::Mutex, counts, 100, 10, 1.0);
        assert_eq!((row.rmw, row.rmw_each_wait), (2.3, 3.0));
        assert_eq!(WorkRow::new(Family::Mutex, counts, 100, 0, 1.0).rmw_each_wait, 0.0);
    }
}
