//! The counters under real threads.

mod crowd;

use std::sync::atomic::{AtomicI64, Ordering};

use crowd::Crowd;
use locks::counter::{Counter, GatedCounter, LockedCounter, SequenceCounter};

const CPUS: usize = 4;
const ROUNDS: i64 = 20_000;
const BATCH: i32 = 8;

/// All CPUs add, and one of them sums now and then. Returns the most by which a sum exceeded the
/// adds begun, and the most by which it fell short of those completed.
fn deviation<C: Counter + Sync>(counter: &C) -> (i64, i64) {
    let crowd = Crowd::new(CPUS, 50);
    let (begun, done) = (AtomicI64::new(0), AtomicI64::new(0));
    let (over, under) = (AtomicI64::new(0), AtomicI64::new(0));
    crowd.run(|cpu| {
        for round in 0..ROUNDS {
            let amount = 1 + round % 5;
            begun.fetch_add(amount, Ordering::SeqCst);
            counter.add(cpu, amount);
            done.fetch_add(amount, Ordering::SeqCst);
            if cpu.id == 0 && round % 64 == 0 {
                let least = done.load(Ordering::SeqCst);
                let sum = counter.sum(cpu);
                over.fetch_max(sum - begun.load(Ordering::SeqCst), Ordering::SeqCst);
                under.fetch_max(least - sum, Ordering::SeqCst);
            }
        }
    });
    let all = done.into_inner();
    assert_eq!(all, CPUS as i64 * ROUNDS * 3, "the amounts 1 to 5 are not equally frequent");
    assert_eq!(counter.sum(&crowd.cpu(0)), all, "an add is lost");
    assert!((all - counter.read()).abs() <= CPUS as i64 * i64::from(BATCH - 1));
    (over.into_inner(), under.into_inner())
}

#[test]
fn a_locked_counter_loses_nothing_and_sums_no_add_twice() {
    assert_eq!(deviation(&LockedCounter::new(CPUS, BATCH)), (0, 0));
}

#[test]
fn a_gated_counter_loses_nothing_and_sums_no_add_twice() {
    assert_eq!(deviation(&GatedCounter::new(CPUS, BATCH)), (0, 0));
}

#[test]
fn a_sequence_counter_loses_nothing_and_its_sums_exceed_by_no_more_than_its_bound() {
    let (over, under) = deviation(&SequenceCounter::new(CPUS, BATCH));
    assert!(over <= CPUS as i64 * i64::from(BATCH - 1), "{over} too many");
    assert_eq!(under, 0);
}
