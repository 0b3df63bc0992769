//! The mutexes under real threads.

mod crowd;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crowd::Crowd;
use locks::mutex::{
    BaselineMutex, MutexTaken, OneSpinnerMutex, QueuedMutex, RawMutex, ReadFirstMutex,
};
use locks::{Handoff, Section};

/// Sums over all acquisitions.
#[derive(Debug, Default)]
struct Totals {
    slow: AtomicU64,
    halts: AtomicU64,
    kicks: AtomicU64,
    spins: AtomicU64,
    rmw: AtomicU64,
}

impl Totals {
    fn count(&self, taken: MutexTaken) {
        self.slow.fetch_add(taken.slow.into(), Ordering::Relaxed);
        self.halts.fetch_add(taken.halts.into(), Ordering::Relaxed);
        self.spins.fetch_add(taken.spins.into(), Ordering::Relaxed);
        self.rmw.fetch_add(taken.rmw.into(), Ordering::Relaxed);
    }
}

/// Every CPU takes `mutex` `rounds` times.
fn contend<M: RawMutex + Sync>(mutex: &M, crowd: &Crowd, rounds: u32) -> Totals {
    let section = Section::new();
    let totals = Totals::default();
    crowd.run(|cpu| {
        for round in 0..rounds {
            let taken = mutex.lock(cpu);
            if round % 64 == 0 {
                // Makes sure that, on any machine, a waiter meets an owner that is off its CPU.
                thread::yield_now();
            }
            assert_eq!(section.run(cpu.id, 20), Ok(()));
            let released = mutex.unlock(cpu);
            totals.count(taken);
            totals.kicks.fetch_add(released.kicks.into(), Ordering::Relaxed);
        }
    });
    let halts = totals.halts.load(Ordering::Relaxed);
    assert!(crowd.halts.load(Ordering::Relaxed) >= halts, "reported halts were made");
    totals
}

fn excludes<M: RawMutex + Sync + Default>() {
    // Sleeping at once, after a short spin, and hardly ever.
    for spin_threshold in [0, 20, 2000] {
        contend(&M::default(), &Crowd::new(8, spin_threshold), 4_000);
    }
    // The owner always seems to be off.
    let off = Crowd::new(6, 100);
    off.off.store(u64::MAX, Ordering::Relaxed);
    let totals = contend(&M::default(), &off, 4_000);
    assert!(totals.halts.into_inner() > 0 && totals.kicks.into_inner() > 0);
}

#[test]
fn the_baseline_excludes_and_loses_no_wakeup() {
    excludes::<BaselineMutex>();
}

#[test]
fn read_first_excludes_and_loses_no_wakeup() {
    excludes::<ReadFirstMutex>();
}

#[test]
fn one_spinner_excludes_and_loses_no_wakeup() {
    excludes::<OneSpinnerMutex>();
}

#[test]
fn queued_spinners_exclude_and_lose_no_wakeup() {
    excludes::<QueuedMutex>();
}

#[test]
fn no_wakeup_is_lost_where_the_lists_lock_owes_kicks() {
    let handoff = Handoff { fuse: true, claim: true, adapt: true, ..Handoff::default() };
    let mut crowd = Crowd::new(8, 0);
    crowd.handoff = handoff;
    contend(&QueuedMutex::new(), &crowd, 4_000);
}

#[test]
fn alone_a_mutex_costs_one_write_each_way() {
    let totals = contend(&QueuedMutex::new(), &Crowd::new(1, 10), 10_000);
    assert_eq!((totals.slow.into_inner(), totals.rmw.into_inner()), (0, 10_000));
}

fn tries<M: RawMutex + Sync + Default>() {
    let (mutex, crowd, section) = (M::default(), Crowd::new(4, 10), Section::new());
    let (won, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    crowd.run(|cpu| {
        for round in 0..5_000 {
            let taken =
                if (round + cpu.id) % 4 == 0 { Some(mutex.lock(cpu)) } else { mutex.try_lock(cpu) };
            if taken.is_some() {
                won.fetch_add(1, Ordering::Relaxed);
                assert_eq!(section.run(cpu.id, 20), Ok(()));
                mutex.unlock(cpu);
            } else {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(won.load(Ordering::Relaxed) + lost.into_inner(), 20_000);
    assert!(won.into_inner() >= 5_000, "lock() always succeeds");
    assert!(mutex.try_lock(&crowd.cpu(0)).is_some(), "it is free in the end");
}

#[test]
fn tries_and_waits_race_for_every_mutex() {
    tries::<BaselineMutex>();
    tries::<ReadFirstMutex>();
    tries::<OneSpinnerMutex>();
    tries::<QueuedMutex>();
}
