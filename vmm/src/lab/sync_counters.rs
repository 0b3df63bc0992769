//! What mutexes, counters and lockrefs did beside their operations.

use std::ops::AddAssign;

use locks::Family;
use serde::{Deserialize, Serialize};

/// Counts of a run, summed over the vCPUs. See [`hypercalls::payload::Slot`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkCounts {
    /// Atomic read-modify-writes of a mutex's word.
    pub rmw: u64,
    /// Those of what says who may spin for it.
    pub beside: u64,
    /// Looks of optimistic spinners, and of adds that were kept waiting.
    pub spins: u64,
    /// Compare-exchanges of a lockref in vain.
    pub retries: u64,
    /// Sums of a counter.
    pub sums: u64,
    /// The most that a sum was off.
    pub deviation: u64,
    /// Looks of a reader at a hot line.
    pub looks: u64,
}

impl AddAssign for WorkCounts {
    fn add_assign(&mut self, other: Self) {
        self.rmw += other.rmw;
        self.beside += other.beside;
        self.spins += other.spins;
        self.retries += other.retries;
        self.sums += other.sums;
        self.deviation = self.deviation.max(other.deviation);
        self.looks += other.looks;
    }
}

/// The same over all runs of a contender, for each operation or second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorkRow {
    /// What it is.
    pub family: &'static str,
    /// Atomic read-modify-writes of a mutex's word for each acquisition, its release included.
    pub rmw: f64,
    /// Those beyond the two of an acquisition that finds it free, for each that had to wait.
    pub rmw_each_wait: f64,
    /// Those of what says who may spin, for each acquisition.
    pub beside: f64,
    /// Looks of spinners for each acquisition.
    pub spins: f64,
    /// Compare-exchanges in vain for each change of a lockref's count.
    pub retries: f64,
    /// Sums a second.
    pub sums: f64,
    /// The most that a sum was off.
    pub deviation: u64,
    /// Looks of a reader a second.
    pub looks: f64,
}

impl WorkRow {
    /// Of so many operations in so long, of which some were `slow`.
    pub fn new(
        family: Family,
        counts: WorkCounts,
        operations: u64,
        slow: u64,
        seconds: f64,
    ) -> Self {
        let over = |count: u64, all: u64| if all > 0 { count as f64 / all as f64 } else { 0.0 };
        let each = |count| over(count, operations);
        // An operation is a get and a put.
        let changes = if family == Family::Lockref { 2.0 } else { 1.0 };
        Self {
            family: family.name(),
            rmw: each(counts.rmw),
            rmw_each_wait: over(counts.rmw.saturating_sub(2 * operations), slow),
            beside: each(counts.beside),
            spins: each(counts.spins),
            retries: each(counts.retries) / changes,
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
    fn counts_add_up_but_for_what_is_the_most() {
        let mut all = WorkCounts { rmw: 1, deviation: 7, ..WorkCounts::default() };
        all += WorkCounts { rmw: 2, deviation: 5, looks: 1, ..WorkCounts::default() };
        assert_eq!(all, WorkCounts { rmw: 3, deviation: 7, looks: 1, ..WorkCounts::default() });
    }

    #[test]
    fn a_lockrefs_operation_changes_the_count_twice() {
        let counts = WorkCounts { retries: 30, looks: 8, ..WorkCounts::default() };
        let row = WorkRow::new(Family::Lockref, counts, 10, 0, 2.0);
        assert_eq!((row.retries, row.looks), (1.5, 4.0));
        assert_eq!(WorkRow::new(Family::Mutex, counts, 0, 0, 2.0).retries, 0.0);
    }

    #[test]
    fn a_wait_is_charged_what_its_absence_saves() {
        let counts = WorkCounts { rmw: 230, ..WorkCounts::default() };
        let row = WorkRow::new(Family::Mutex, counts, 100, 10, 1.0);
        assert_eq!((row.rmw, row.rmw_each_wait), (2.3, 3.0));
        assert_eq!(WorkRow::new(Family::Mutex, counts, 100, 0, 1.0).rmw_each_wait, 0.0);
    }
}
