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
fn taken<const PAUSE: u32, S: Spinners>(mutex: Mutex<S>, owner_is_off: bool) -> MutexTaken {
    let stage = Stage { spin_threshold: 10, ..Stage::new(mutex, release::<PAUSE, S>) };
    stage.off.set(owner_is_off.into());
    let (mutex, first, second) = (&stage.lock, stage.cpu(0), stage.cpu(1));
    assert_eq!(mutex.lock(&first), MutexTaken { rmw: 1, ..Default::default() });
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
fn a_sleeper_writes_three_times_in_the_baseline_and_twice_less_if_it_reads() {
    // The decrement, and the attempts before queueing, before sleeping and after it.
    let asleep = MutexTaken { slow: true, halts: 1, rmw: 4, ..MutexTaken::default() };
    assert_eq!(taken::<0, _>(BaselineMutex::new(), true), asleep);
    let fewer = MutexTaken { rmw: 2, ..asleep };
    assert_eq!(taken::<0, _>(ReadFirstMutex::new(), true), fewer);
    assert_eq!(taken::<0, _>(OneSpinnerMutex::new(), true), MutexTaken { beside: 1, ..fewer });
    assert_eq!(taken::<0, _>(QueuedMutex::new(), true), MutexTaken { beside: 2, ..fewer });
}

#[test]
fn a_spinner_takes_the_mutex_from_an_owner_that_runs() {
    let spun = MutexTaken { slow: true, spins: 4, rmw: 2, ..MutexTaken::default() };
    assert_eq!(taken::<4, _>(BaselineMutex::new(), false), spun);
    assert_eq!(taken::<4, _>(ReadFirstMutex::new(), false), spun);
    assert_eq!(taken::<4, _>(OneSpinnerMutex::new(), false), MutexTaken { beside: 1, ..spun });
    assert_eq!(taken::<4, _>(QueuedMutex::new(), false), MutexTaken { beside: 2, ..spun });
}

#[test]
fn spinning_ends_at_the_threshold() {
    let slept = taken::<0, _>(ReadFirstMutex::new(), false);
    assert_eq!((slept.spins, slept.halts), (10, 1));
}

/// A mutex that CPU 0 owns.
struct Three<S> {
    mutex: Mutex<S>,
    /// The cost of CPU 2's acquisition.
    second: Cell<Option<MutexTaken>>,
    is_come: Cell<bool>,
    is_released: Cell<bool>,
}

/// CPU 2 takes the mutex at the first step of CPU 1; CPU 0 releases it at the first halt after that.
fn others<S: Spinners>(stage: &Stage<Three<S>>, step: Step) {
    let Three { mutex, second, is_come, is_released } = &stage.lock;
    if !is_come.replace(true) {
        let cpu = Cpu { spin_threshold: 10, ..stage.cpu(2) };
        second.set(Some(mutex.lock(&cpu)));
        mutex.unlock(&cpu);
    } else if step == Step::Halt && !is_released.replace(true) {
        mutex.unlock(&stage.cpu(0));
    }
}

/// The cost of CPU 2's acquisition, and the number of kicks by CPU.
fn three<S: Spinners>(mutex: Mutex<S>, looks: u32) -> (MutexTaken, [u32; 4]) {
    let [is_come, is_released] = [false; 2].map(Cell::new);
    let three = Three { mutex, second: Cell::new(None), is_come, is_released };
    let stage = Stage { spin_threshold: looks, ..Stage::new(three, others) };
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
    let (second, kicked) = three(ReadFirstMutex::new(), 0);
    assert_eq!((second.halts, kicked), (1, [0, 2, 0, 0]));
    assert_eq!(three(BaselineMutex::new(), 0).1, [0, 2, 0, 0]);
}

#[test]
fn the_second_spinner_of_a_mutex_for_one_sleeps_at_once() {
    let (second, kicked) = three(OneSpinnerMutex::new(), 100);
    assert_eq!((second.spins, second.beside, second.halts), (0, 0, 1));
    assert_eq!(kicked, [0, 0, 1, 0]);
}

#[test]
fn a_queuer_that_gives_up_leaves_a_node_that_is_skipped() {
    // It spins only in the queue: as many iterations as the threshold, and none at the mutex.
    let (second, kicked) = three(QueuedMutex::new(), 100);
    assert_eq!((second.spins, second.beside, second.halts), (10, 1, 1));
    assert_eq!((second.rmw, kicked), (2, [0, 0, 1, 0]));
}
