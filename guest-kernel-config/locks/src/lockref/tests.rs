//! One CPU, and a rival that holds the lock.

use super::*;
use crate::{Handoff, Unwatched, WaitTable};
use core::cell::Cell;

/// Releases the lock of `holder` at the first hint or halt.
struct Rival<'a, const TRIES: u32> {
    lockref: &'a Lockref<TRIES>,
    waiters: &'a WaitTable,
    is_holding: Cell<bool>,
    kicks: Cell<u32>,
}

impl<const TRIES: u32> Rival<'_, TRIES> {
    fn release(&self) {
        if self.is_holding.replace(false) {
            self.lockref.unlock(&cpu(0, self, self.waiters, 0));
        }
    }
}

impl<const TRIES: u32> Pv for Rival<'_, TRIES> {
    fn spin_hint(&self) {
        self.release();
    }

    fn lock_spinning(&self, _: u16) {
        self.release();
        assert_eq!(self.kicks.get(), 1, "it sleeps forever");
    }

    fn unlock_kick(&self, cpu: usize) {
        assert_eq!(cpu, 1);
        self.kicks.set(self.kicks.get() + 1);
    }
}

fn cpu<'a, P: Pv>(id: usize, pv: &'a P, waiters: &'a WaitTable, looks: u32) -> Cpu<'a, P> {
    let (watch, handoff) = (Unwatched, Handoff::default());
    Cpu { id, spin_threshold: looks, pv, waiters, watch, handoff }
}

/// Runs `act` on CPU 1 while CPU 0 holds the lock.
fn rivalry<const TRIES: u32, R>(
    lockref: &Lockref<TRIES>,
    looks: u32,
    act: impl Fn(&Cpu<'_, Rival<'_, TRIES>>) -> R,
) -> R {
    let waiters = &WaitTable::new();
    let (is_holding, kicks) = (Cell::new(true), Cell::new(0));
    let rival = Rival { lockref, waiters, is_holding, kicks };
    lockref.lock(&cpu(0, &rival, waiters, looks));
    let done = act(&cpu(1, &rival, waiters, looks));
    assert!(!rival.is_holding.get(), "it did not wait");
    done
}

/// Runs `act` on a CPU without rivals.
fn alone<const TRIES: u32, R>(
    lockref: &Lockref<TRIES>,
    act: impl Fn(&Cpu<'_, Rival<'_, TRIES>>) -> R,
) -> R {
    let waiters = &WaitTable::new();
    let rival = Rival { lockref, waiters, is_holding: Cell::new(false), kicks: Cell::new(0) };
    act(&cpu(1, &rival, waiters, 0))
}

fn counts<const TRIES: u32>() {
    let lockref = Lockref::<TRIES>::new(1);
    let free = Counted { locked: TRIES == 0, ..Counted::default() };
    alone(&lockref, |cpu| {
        assert_eq!(lockref.get(cpu), free);
        assert_eq!(lockref.get_not_dead(cpu), Ok(free));
        assert_eq!(lockref.count(), 3);
        assert_eq!(lockref.put(cpu), free);
        assert_eq!(lockref.put_or_lock(cpu), Put::Done(free));
        assert_eq!(lockref.put_or_lock(cpu), Put::Locked(Counted { locked: true, ..free }));
        assert_eq!(lockref.count(), 1, "the last reference is the holder's");
        lockref.mark_dead();
        lockref.unlock(cpu);
        assert_eq!(lockref.get_not_dead(cpu), Err(Dead));
        lockref.get(cpu);
        assert_eq!(lockref.get_not_dead(cpu), Err(Dead), "dead it stays");
        assert!(lockref.is_dead());
    });
}

#[test]
fn references_come_and_go_and_the_dead_stay_dead() {
    counts::<UNBOUNDED>();
    counts::<USUAL_TRIES>();
    counts::<0>();
}

fn waits<const TRIES: u32>() {
    let lockref = Lockref::<TRIES>::new(2);
    let spun = rivalry(&lockref, 5, |cpu| lockref.get(cpu));
    assert_eq!((spun.locked, spun.halts), (true, 0));
    let halted = rivalry(&lockref, 0, |cpu| lockref.put_or_lock(cpu));
    assert_eq!(halted, Put::Done(Counted { locked: true, halts: 1, ..Counted::default() }));
    assert_eq!(lockref.count(), 2);
}

#[test]
fn a_held_lock_is_waited_for_and_the_count_left_alone() {
    waits::<UNBOUNDED>();
    waits::<USUAL_TRIES>();
    waits::<0>();
}

#[test]
fn tries_in_vain_are_counted_and_end_at_the_bound() {
    fn tries<const TRIES: u32>(rivals: u32) -> (Option<bool>, u32) {
        let lockref = Lockref::<TRIES>::new(1);
        let mut counted = Counted::default();
        let left = Cell::new(rivals);
        let done = lockref.try_to_change(&mut counted, |count| {
            if left.get() > 0 {
                // Another CPU takes a reference between the look and the exchange.
                left.set(left.get() - 1);
                alone(&lockref, |cpu| lockref.get(cpu));
            }
            Some(count + 1)
        });
        (done, counted.retries)
    }
    assert_eq!(tries::<3>(2), (Some(true), 2));
    assert_eq!(tries::<3>(3), (None, 3));
    assert_eq!(tries::<UNBOUNDED>(1000), (Some(true), 1000));
    assert_eq!(tries::<0>(0), (None, 0));
}
