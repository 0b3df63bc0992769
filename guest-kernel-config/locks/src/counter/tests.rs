//! The guarantees common to all counters, and their differences.

use super::*;
use crate::test_stage::Stage;
use proptest::prelude::*;

/// After each add, the sum is exact and a read is within its bound.
fn check_bounds<C: Counter>(counter: C, batch: i32, adds: &[(usize, i64)], start: i64) {
    let stage = &Stage::without_waits(());
    counter.set(&stage.cpu(0), start);
    let mut total = start;
    for (id, amount) in adds {
        let added = counter.add(&stage.cpu(*id), *amount);
        total += amount;
        assert!(added.shared || amount.abs() < 2 * i64::from(batch) - 1);
        assert_eq!(counter.sum(&stage.cpu(CPUS - 1)), total);
        let error = (counter.read() - total).abs();
        assert!(error <= CPUS as i64 * i64::from(batch - 1), "a read is off by {error}");
        assert_eq!(counter.read_positive(), counter.read().max(0));
    }
    counter.set(&stage.cpu(0), -5);
    let now = (counter.sum(&stage.cpu(1)), counter.read(), counter.read_positive());
    assert_eq!(now, (-5, -5, 0));
}

const CPUS: usize = 5;

proptest! {
    #[test]
    fn sums_are_exact_and_reads_are_bounded(
        batch in 1_i32..50,
        start in -100_i64..100,
        adds in prop::collection::vec((0..CPUS, -120_i64..120), 0..60),
    ) {
        check_bounds(LockedCounter::new(CPUS, batch), batch, &adds, start);
        check_bounds(SequenceCounter::new(CPUS, batch), batch, &adds, start);
        check_bounds(GatedCounter::new(CPUS, batch), batch, &adds, start);
    }
}

#[test]
fn amounts_are_folded_in_batches() {
    let stage = &Stage::without_waits(());
    let (first, second) = (stage.cpu(0), stage.cpu(1));
    let counter = GatedCounter::new(2, 4);
    assert!(!counter.add(&first, 3).shared);
    assert!(!counter.add(&second, -3).shared);
    assert_eq!(counter.read(), 0);
    assert!(counter.add(&first, 1).shared);
    assert!(counter.add(&second, -2).shared);
    assert_eq!((counter.read(), counter.sum(&first)), (-1, -1));
}

#[test]
fn an_amount_of_any_size_is_counted() {
    let stage = &Stage::without_waits(());
    let cpu = stage.cpu(0);
    let counter = LockedCounter::new(1, i32::MAX);
    counter.add(&cpu, 1 << 40);
    counter.add(&cpu, i64::from(i32::MAX) - 1);
    assert_eq!((counter.read(), counter.sum(&cpu)), (1 << 40, (1 << 40) + i64::from(i32::MAX) - 1));
}

#[test]
fn the_default_batch_matches_linux() {
    assert_eq!([1, 16, 17, 128].map(default_batch), [32, 32, 34, 256]);
}
