//! Checks of the per-CPU counters. The batch is two, so that a CPU folds at every second add of 1.

use crate::counter::{Counter, GatedCounter, LockedCounter, SequenceCounter};
use crate::machine::{Setup, SleepCpu, THREE, TWO, run};
use crate::sync::{AtomicU32, Ordering};
use in_the_model::sleep::Check;

const BATCH: i32 = 2;

/// The most that a CPU keeps in its own part of the counter.
const KEPT: i64 = BATCH as i64 - 1;

/// A counter, and the number of adds of 1 that are completed, as far as other CPUs may know.
struct CountedAdds<C> {
    counter: C,
    done: AtomicU32,
}

trait CheckedCounter: Counter + Send + Sync + 'static {
    /// By how much each CPU in the middle of an add may make a concurrent sum too large.
    const HOLE: i64;

    fn make(cpus: usize) -> Self;
}

impl CheckedCounter for LockedCounter {
    const HOLE: i64 = 0;

    fn make(cpus: usize) -> Self {
        Self::new(cpus, BATCH)
    }
}

impl CheckedCounter for SequenceCounter {
    const HOLE: i64 = KEPT;

    fn make(cpus: usize) -> Self {
        Self::new(cpus, BATCH)
    }
}

impl CheckedCounter for GatedCounter {
    const HOLE: i64 = 0;

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

/// Sums on this CPU while other CPUs may add; `most` is all that is ever added. The sum must contain
/// every add that was completed before, and may exceed `most` only by `hole`.
fn sum_of<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>, most: i64, hole: i64) {
    let CountedAdds { counter, done } = &vcpu.machine.subject;
    let least = i64::from(done.load(Ordering::Acquire));
    let sum = counter.sum(&vcpu.cpu());
    assert!(sum >= least, "an add is missed");
    assert!(sum <= most + hole, "an add is counted twice");
}

fn one_adds<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    if vcpu.id == 0 { sum_of(vcpu, 2, C::HOLE) } else { add(vcpu, 2) }
}

fn two_add<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    if vcpu.id == 0 { sum_of(vcpu, 4, 2 * C::HOLE) } else { add(vcpu, 2) }
}

fn two_sum<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    if vcpu.id < 2 { sum_of(vcpu, 2, C::HOLE) } else { add(vcpu, 2) }
}

fn all_add_and_sum<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    add(vcpu, 3);
    sum_of(vcpu, 12, 3 * C::HOLE);
    add(vcpu, 1);
}

/// As [`one_adds`], but no add may be counted twice, whatever the counter's hole.
fn exact<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    if vcpu.id == 0 { sum_of(vcpu, 2, 0) } else { add(vcpu, 2) }
}

fn done<C: CheckedCounter>(vcpu: &SleepCpu<CountedAdds<C>>) {
    let CountedAdds { counter, done } = &vcpu.machine.subject;
    let all = i64::from(done.load(Ordering::Relaxed));
    assert_eq!(counter.sum(&vcpu.cpu()), all, "an add is lost");
    let most = 4 * KEPT;
    assert!((counter.read() - all).abs() <= most, "a read is off by too much");
}

fn counted<C: CheckedCounter>(setup: Setup) -> CountedAdds<C> {
    CountedAdds { counter: C::make(setup.cpus), done: AtomicU32::new(0) }
}

fn run_with<C: CheckedCounter>(setup: Setup, work: fn(&SleepCpu<CountedAdds<C>>)) {
    run(setup, counted(setup), work, done);
}

fn one<C: CheckedCounter>() {
    run_with::<C>(TWO, one_adds);
}

fn two<C: CheckedCounter>() {
    run_with::<C>(THREE, two_add);
}

fn sums<C: CheckedCounter>() {
    run_with::<C>(THREE, two_sum);
}

fn many<C: CheckedCounter>() {
    run_with::<C>(Setup { cpus: 3, spin: 2, ..TWO }, all_add_and_sum);
}

fn hole<C: CheckedCounter>() {
    run_with::<C>(TWO, exact);
}

macro_rules! checks {
    ($($counter:ident: $three:literal),*) => {
        &[$(
            checks!($counter, one, 2, 0),
            checks!($counter, two, $three, 500),
            checks!($counter, sums, $three, 500),
            checks!($counter, many, 0, 500),
        )*]
    };
    ($counter:ident, $run:ident, $preemptions:expr, $times:expr) => {
        Check {
            name: concat!(stringify!($counter), " ", stringify!($run)),
            run: $run::<$counter>,
            preemptions: $preemptions,
            times: $times,
        }
    };
}

/// All checks. loom runs none with zero preemptions: three CPUs that spin for each other are too many
/// for it.
pub const CHECKS: &[Check] = checks!(LockedCounter: 1, SequenceCounter: 1, GatedCounter: 0);

/// A check that must fail: [`SequenceCounter`] may count an add twice.
pub const HOLE: &[Check] = &[checks!(SequenceCounter, hole, 2, 500)];
