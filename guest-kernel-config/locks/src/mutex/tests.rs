//! CPUs on one thread: the pauses and halts of one CPU run the steps of another.

use super::*;
use crate::test_stage::{Stage, Step};
use core::cell::Cell;

/// CPU 0 releases the mutex at the `PAUSE`th pause or at a halt of CPU 1.
fn release<const PAUSE: u32, S: Spinners>(stage: &Stage<Mutex<S>>, step: Step) {
    if step == Step::Halt || stage.pauses.get() == PAUSE {
        assert_eq!(stage.lock.owner.load(Ordering::Relaxed), 1, "it waits though it is free");
        stage.lock.unlock(&stage.cpu(0));
    }
}

/// The cost of CPU 1's acquisition of the mutex that CPU 0 holds; checks that CPU 1 then owns it.
fn cost<const PAUSE: u32, S: Spinners>(mutex: Mutex<S>, owner_is_off: bool) -> MutexCost {
    let stage = Stage { spin_threshold: 10, ..Stage::new(mutex, release::<PAUSE, S>) };
    stage.off.set(owner_is_off.into());
    let (mutex, first, second) = (&stage.lock, stage.cpu(0), stage.cpu(1));
    assert_eq!(mutex.lock(&first), MutexCost { rmw: 1, ..Default::default() });
    assert!(mutex.is_locked());
    assert_eq!(mutex.try_lock(&second), None);
    let taken = mutex.lock(&second);
    assert_eq!(mutex.try_lock(&second), None);
    assert_eq!(mutex.owner.load(Ordering::Relaxed), 2);
    assert_eq!(mutex.word.load(Ordering::Relaxed), TAKEN, "no CPU sleeps any more");
    assert_eq!(mutex.unlock(&second).kicks, 0);
    assert_eq!(mutex.word.load(Ordering::Relaxed), FREE);
    taken
}

#[test]
fn reading_first_saves_two_writes() {
    // The decrement, and the attempts after queueing, before sleeping and after it.
    let asleep = MutexCost { slow: true, halts: 1, rmw: 4, ..MutexCost::default() };
    assert_eq!(cost::<0, _>(BaselineMutex::new(), true), asleep);
    let fewer = MutexCost { rmw: 2, ..asleep };
    assert_eq!(cost::<0, _>(ReadFirstMutex::new(), true), fewer);
    assert_eq!(cost::<0, _>(OneSpinnerMutex::new(), true), MutexCost { spinner_rmw: 1, ..fewer });
    assert_eq!(cost::<0, _>(QueuedMutex::new(), true), MutexCost { spinner_rmw: 2, ..fewer });
}

#[test]
fn a_spinner_waits_for_a_running_owner() {
    let spun = MutexCost { slow: true, spins: 4, rmw: 2, ..MutexCost::default() };
    assert_eq!(cost::<4, _>(BaselineMutex::new(), false), spun);
    assert_eq!(cost::<4, _>(ReadFirstMutex::new(), false), spun);
    assert_eq!(cost::<4, _>(OneSpinnerMutex::new(), false), MutexCost { spinner_rmw: 1, ..spun });
    assert_eq!(cost::<4, _>(QueuedMutex::new(), false), MutexCost { spinner_rmw: 2, ..spun });
}

#[test]
fn spinning_ends_at_the_threshold() {
    let slept = cost::<0, _>(ReadFirstMutex::new(), false);
    assert_eq!((slept.spins, slept.halts), (10, 1));
}

/// A mutex that CPU 0 owns.
struct ThreeCpus<S> {
    mutex: Mutex<S>,
    /// The cost of CPU 2's acquisition.
    second: Cell<Option<MutexCost>>,
    has_arrived: Cell<bool>,
    is_released: Cell<bool>,
}

/// CPU 2 takes the mutex at the first step of CPU 1; CPU 0 releases it at the first halt after that.
fn act<S: Spinners>(stage: &Stage<ThreeCpus<S>>, step: Step) {
    let ThreeCpus { mutex, second, has_arrived, is_released } = &stage.lock;
    if !has_arrived.replace(true) {
        let cpu = Cpu { spin_threshold: 10, ..stage.cpu(2) };
        second.set(Some(mutex.lock(&cpu)));
        mutex.unlock(&cpu);
    } else if step == Step::Halt && !is_released.replace(true) {
        mutex.unlock(&stage.cpu(0));
    }
}

/// The cost of CPU 2's acquisition, and the number of kicks by CPU.
fn three_cpus<S: Spinners>(mutex: Mutex<S>, spin_threshold: u32) -> (MutexCost, [u32; 4]) {
    let [has_arrived, is_released] = [false; 2].map(Cell::new);
    let cpus = ThreeCpus { mutex, second: Cell::new(None), has_arrived, is_released };
    let stage = Stage { spin_threshold, ..Stage::new(cpus, act) };
    let (mutex, first) = (&stage.lock.mutex, stage.cpu(1));
    mutex.lock(&stage.cpu(0));
    mutex.lock(&first);
    mutex.unlock(&first);
    let links = |cpu| stage.waiters.links(cpu);
    assert!((0..3).all(|cpu| links(cpu).prepare()), "a node is left in the queue");
    (stage.lock.second.get().expect("it came"), stage.kicks.get())
}

#[test]
fn the_first_to_sleep_is_the_first_to_be_woken() {
    // CPU 2 sleeps behind CPU 1, and is faster when it wakes spuriously.
    let (second, kicked) = three_cpus(ReadFirstMutex::new(), 0);
    assert_eq!((second.halts, kicked), (1, [0, 2, 0, 0]));
    assert_eq!(three_cpus(BaselineMutex::new(), 0).1, [0, 2, 0, 0]);
}

#[test]
fn a_second_spinner_sleeps_at_once() {
    let (second, kicked) = three_cpus(OneSpinnerMutex::new(), 100);
    assert_eq!((second.spins, second.spinner_rmw, second.halts), (0, 0, 1));
    assert_eq!(kicked, [0, 0, 1, 0]);
}

#[test]
fn an_abandoned_spinner_node_is_skipped() {
    // CPU 2 spins only in the queue: as many iterations as the threshold, none at the mutex.
    let (second, kicked) = three_cpus(QueuedMutex::new(), 100);
    assert_eq!((second.spins, second.spinner_rmw, second.halts), (10, 1, 1));
    assert_eq!((second.rmw, kicked), (2, [0, 0, 1, 0]));
}
