//! Checks of the per-CPU counters. The batch is two, so that a CPU folds at every second add of 1.

use crate::counter::{Counter, GatedCounter, LockedCounter, SequenceCounter};
use crate::machine::{Setup, SleepCpu, THREE, TWO, run};
use crate::sync::{AtomicU32, Ordering};
use in_the_model::Check;

const BATCH: i32 = 2;

/// The largest amount in one CPU's part of the counter.
const MAX_LOCAL: i64 = BATCH as i64 - 1;

/// A counter, and the number of completed adds of 1, which may lag behind.
struct CountedAdds<C> {
    counter: C,
    done: AtomicU32,
}

trait CheckedCounter: Counter + Send + Sync + 'static {
    /// The amount by which each CPU in the middle of an add may make a concurrent sum too large.
    const HOLE: i64 = if Self::EXACT { 0 } else { MAX_LOCAL };

    fn make(cpus: usize) -> Self;
}

impl CheckedCounter for LockedCounter {
    fn make(cpus: usize) -> Self {
        Self::new(cpus, BATCH)
    }
}

impl CheckedCounter for SequenceCounter {
    fn make(cpus: usize) -> Self {
        Self::new(cpus, BATCH)
    }
}

impl CheckedCounter for GatedCounter {
    fn make(cpus: usize) -> Self {
        Self::new(cpus, BATCH)
    }
}

fn add<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>, times: u32) {
    let CountedAdds { counter, done } = &vcpu.machine.subject;
    for _ in 0..times {
        counter.add(&vcpu.cpu(), 1);
        done.fetch_add(1, Ordering::Release);
    }
}

/// Sums on this CPU while other CPUs may add; `max` is the total of all adds. The sum must contain
/// every add that was completed before, and may exceed `max` only by `hole`.
fn check_sum<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>, max: i64, hole: i64) {
    let CountedAdds { counter, done } = &vcpu.machine.subject;
    let min = i64::from(done.load(Ordering::Acquire));
    let sum = counter.sum(&vcpu.cpu());
    assert!(sum >= min, "an add is missed");
    assert!(sum <= max + hole, "an add is counted twice");
}

fn one_adds<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    if vcpu.id == 0 { check_sum(vcpu, 2, C::HOLE) } else { add(vcpu, 2) }
}

fn two_add<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    if vcpu.id == 0 { check_sum(vcpu, 4, 2 * C::HOLE) } else { add(vcpu, 2) }
}

fn two_sum<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    if vcpu.id < 2 { check_sum(vcpu, 2, C::HOLE) } else { add(vcpu, 2) }
}

fn all_add_and_sum<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    add(vcpu, 3);
    check_sum(vcpu, 12, 3 * C::HOLE);
    add(vcpu, 1);
}

/// Like [`one_adds`], but no add may be counted twice, even if the counter has a hole.
fn exact<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    if vcpu.id == 0 { check_sum(vcpu, 2, 0) } else { add(vcpu, 2) }
}

fn check_done<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    let CountedAdds { counter, done } = &vcpu.machine.subject;
    let total = i64::from(done.load(Ordering::Relaxed));
    assert_eq!(counter.sum(&vcpu.cpu()), total, "an add is lost");
    let max = 4 * MAX_LOCAL;
    assert!((counter.read() - total).abs() <= max, "a read is off by too much");
}

fn check<C: CheckedCounter>(setup: Setup, work: fn(&SleepCpu<CountedAdds<C>>)) {
    let counted = CountedAdds { counter: C::make(setup.cpus), done: AtomicU32::new(0) };
    run(setup, counted, work, check_done);
}

/// Checks with `preemptions` preemptions of three CPUs. With zero, loom does not run them: three CPUs
/// that wait for each other are too many for it.
const fn checks<C: CheckedCounter>(subject: &'static str, preemptions: usize) -> [Check; 4] {
    [
        Check::new(subject, "one", || check::<C>(TWO, one_adds), 2, 0),
        Check::new(subject, "two", || check::<C>(THREE, two_add), preemptions, 500),
        Check::new(subject, "sums", || check::<C>(THREE, two_sum), preemptions, 500),
        Check::new(subject, "many", || check::<C>(Setup { spin: 2, ..THREE }, all_add_and_sum), 0, 500),
    ]
}

pub const CHECKS: &[&[Check]] = &[
    &checks::<LockedCounter>("LockedCounter", 1),
    &checks::<SequenceCounter>("SequenceCounter", 1),
    &checks::<GatedCounter>("GatedCounter", 0),
];

/// A check that must fail: [`SequenceCounter`] may count an add twice.
pub const HOLE: &[&[Check]] =
    &[&[Check::new("SequenceCounter", "hole", || check::<SequenceCounter>(TWO, exact), 2, 500)]];
