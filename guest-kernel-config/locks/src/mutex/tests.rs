//! CPUs on one thread: the hints and halts of one run the steps of another.

use super::*;
use crate::{Handoff, Unwatched, WaitTable};
use core::cell::{Cell, RefCell};

/// CPU 1 takes what CPU 0 holds; CPU 0 releases it at a hint or at a halt of CPU 1.
struct Stage<'a, S: Spinners> {
    mutex: &'a Mutex<S>,
    waiters: &'a WaitTable,
    /// Hints before CPU 0 releases; none: it releases at the halt.
    hints: Cell<Option<u32>>,
    owner_is_off: bool,
    is_released: Cell<bool>,
}

impl<S: Spinners> Stage<'_, S> {
    fn release(&self) {
        if !self.is_released.replace(true) {
            self.mutex.unlock(&cpu(0, self, self.waiters));
        }
    }
}

impl<S: Spinners> Pv for Stage<'_, S> {
    fn spin_hint(&self) {
        match self.hints.get() {
            Some(0) => self.release(),
            Some(left) => self.hints.set(Some(left - 1)),
            None => (),
        }
    }

    fn lock_spinning(&self, _ticket: u16) {
        assert!(!self.is_released.get(), "it halts though the mutex is free");
        self.release();
    }

    fn unlock_kick(&self, cpu: usize) {
        assert_eq!(cpu, 1);
    }

    fn is_off(&self, cpu: usize) -> bool {
        assert_eq!(cpu, 0, "the owner is meant");
        self.owner_is_off
    }
}

fn cpu<'a, P: Pv>(id: usize, pv: &'a P, waiters: &'a WaitTable) -> Cpu<'a, P> {
    let (watch, handoff) = (Unwatched, Handoff::default());
    Cpu { id, spin_threshold: 10, pv, waiters, watch, handoff }
}

/// The cost of CPU 1's acquisition; checks that it then owns the mutex.
fn taken<S: Spinners>(mutex: &Mutex<S>, hints: Option<u32>, owner_is_off: bool) -> MutexTaken {
    let waiters = &WaitTable::new();
    let (hints, is_released) = (Cell::new(hints), Cell::new(false));
    let stage = Stage { mutex, waiters, hints, owner_is_off, is_released };
    assert_eq!(mutex.lock(&cpu(0, &stage, waiters)), MutexTaken { rmw: 1, ..Default::default() });
    let second = cpu(1, &stage, waiters);
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
    // The decrement, the look before queueing, the look before sleeping, and the one after it.
    let asleep = MutexTaken { slow: true, halts: 1, rmw: 4, ..MutexTaken::default() };
    assert_eq!(taken(&BaselineMutex::new(), None, true), asleep);
    let fewer = MutexTaken { rmw: 2, ..asleep };
    assert_eq!(taken(&ReadFirstMutex::new(), None, true), fewer);
    assert_eq!(taken(&OneSpinnerMutex::new(), None, true), MutexTaken { beside: 1, ..fewer });
    assert_eq!(taken(&QueuedMutex::new(), None, true), MutexTaken { beside: 2, ..fewer });
}

#[test]
fn a_spinner_takes_the_mutex_from_an_owner_that_runs() {
    let spun = MutexTaken { slow: true, spins: 4, rmw: 2, ..MutexTaken::default() };
    assert_eq!(taken(&BaselineMutex::new(), Some(3), false), spun);
    assert_eq!(taken(&ReadFirstMutex::new(), Some(3), false), spun);
    assert_eq!(taken(&OneSpinnerMutex::new(), Some(3), false), MutexTaken { beside: 1, ..spun });
    assert_eq!(taken(&QueuedMutex::new(), Some(3), false), MutexTaken { beside: 2, ..spun });
}

#[test]
fn spinning_ends_at_the_threshold() {
    let slept = taken(&ReadFirstMutex::new(), None, false);
    assert_eq!((slept.spins, slept.halts), (10, 1));
}

/// CPU 0 has the mutex. At the first hint of CPU 1, or its first halt, CPU 2 tries to take it; CPU
/// 0 releases it at the first halt of CPU 2.
struct Three<'a, S: Spinners> {
    mutex: &'a Mutex<S>,
    waiters: &'a WaitTable,
    /// The cost of CPU 2's acquisition.
    second: Cell<Option<MutexTaken>>,
    is_come: Cell<bool>,
    is_released: Cell<bool>,
    kicked: RefCell<([usize; 4], usize)>,
}

impl<S: Spinners> Three<'_, S> {
    fn come(&self) {
        if !self.is_come.replace(true) {
            let cpu = cpu(2, self, self.waiters);
            self.second.set(Some(self.mutex.lock(&cpu)));
            self.mutex.unlock(&cpu);
        }
    }
}

impl<S: Spinners> Pv for Three<'_, S> {
    fn spin_hint(&self) {
        self.come();
    }

    fn lock_spinning(&self, _: u16) {
        if !self.is_come.get() {
            self.come();
        } else if !self.is_released.replace(true) {
            self.mutex.unlock(&cpu(0, self, self.waiters));
        }
    }

    fn unlock_kick(&self, cpu: usize) {
        let (kicked, count) = &mut *self.kicked.borrow_mut();
        kicked[*count] = cpu;
        *count += 1;
    }
}

/// The cost of CPU 2's acquisition, and the number of kicks by CPU.
fn three<S: Spinners>(mutex: &Mutex<S>, looks: u32) -> (MutexTaken, [usize; 4]) {
    let waiters = &WaitTable::new();
    let (second, kicked) = (Cell::new(None), RefCell::default());
    let (is_come, is_released) = (Cell::new(false), Cell::new(false));
    let pv = Three { mutex, waiters, second, is_come, is_released, kicked };
    mutex.lock(&cpu(0, &pv, waiters));
    let first = Cpu { spin_threshold: looks, ..cpu(1, &pv, waiters) };
    mutex.lock(&first);
    mutex.unlock(&first);
    assert!((0..3).all(|cpu| waiters.links(cpu).prepare()), "a node is left in the queue");
    (pv.second.get().expect("it came"), pv.kicked.into_inner().0)
}

#[test]
fn the_first_to_sleep_is_the_first_to_be_woken() {
    // CPU 2 sleeps behind CPU 1, and is faster when it wakes spuriously.
    let (second, kicked) = three(&ReadFirstMutex::new(), 0);
    assert_eq!((second.halts, kicked), (1, [1, 1, 0, 0]));
    assert_eq!(three(&BaselineMutex::new(), 0).1, [1, 1, 0, 0]);
}

#[test]
fn the_second_spinner_of_a_mutex_for_one_sleeps_at_once() {
    let (second, kicked) = three(&OneSpinnerMutex::new(), 100);
    assert_eq!((second.spins, second.beside, second.halts), (0, 0, 1));
    assert_eq!(kicked, [2, 0, 0, 0]);
}

#[test]
fn a_queuer_that_gives_up_leaves_a_node_that_is_skipped() {
    // All its looks are in the queue: as many as the threshold, without a look at the mutex.
    let (second, kicked) = three(&QueuedMutex::new(), 100);
    assert_eq!((second.spins, second.beside, second.halts), (10, 1, 1));
    assert_eq!((second.rmw, kicked), (2, [2, 0, 0, 0]));
}
