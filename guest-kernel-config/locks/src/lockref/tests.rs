//! One CPU, and a rival that holds the lock.

use super::*;
use crate::test_stage::{Stage, Step};
use core::cell::Cell;

/// CPU 0 releases the lock at the first pause or halt.
fn release<const TRIES: u32>(stage: &Stage<&Lockref<TRIES>>, step: Step) {
    if stage.pauses.get() + stage.halts.get() == 1 {
        stage.lock.unlock(&stage.cpu(0));
    }
    assert!(step == Step::Pause || stage.kicks.get()[1] == 1, "it sleeps forever");
}

/// Runs `act` on CPU 1 while CPU 0 holds the lock.
fn contended<const TRIES: u32, R>(
    lockref: &Lockref<TRIES>,
    spin_threshold: u32,
    act: impl Fn(&Cpu<'_, Stage<&Lockref<TRIES>>>) -> R,
) -> R {
    let stage = Stage { spin_threshold, ..Stage::new(lockref, release) };
    lockref.lock(&stage.cpu(0));
    let result = act(&stage.cpu(1));
    assert!(stage.pauses.get() + stage.halts.get() > 0, "it did not wait");
    result
}

/// Runs `act` on a CPU without rivals.
fn uncontended<const TRIES: u32, R>(
    lockref: &Lockref<TRIES>,
    act: impl Fn(&Cpu<'_, Stage<&Lockref<TRIES>>>) -> R,
) -> R {
    act(&Stage::without_waits(lockref).cpu(1))
}

fn check_counts<const TRIES: u32>() {
    let lockref = Lockref::<TRIES>::new(1);
    let free = CountChange { locked: TRIES == 0, ..CountChange::default() };
    uncontended(&lockref, |cpu| {
        assert_eq!(lockref.get(cpu), free);
        assert_eq!(lockref.get_not_dead(cpu), Ok(free));
        assert_eq!(lockref.count(), 3);
        assert_eq!(lockref.put(cpu), free);
        assert_eq!(lockref.put_or_lock(cpu), Put::Done(free));
        assert_eq!(lockref.put_or_lock(cpu), Put::Locked(CountChange { locked: true, ..free }));
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
fn a_dead_lockref_gives_no_references() {
    check_counts::<UNBOUNDED>();
    check_counts::<DEFAULT_TRIES>();
    check_counts::<0>();
}

fn check_waits<const TRIES: u32>() {
    let lockref = Lockref::<TRIES>::new(2);
    let spun = contended(&lockref, 5, |cpu| lockref.get(cpu));
    assert_eq!((spun.locked, spun.halts), (true, 0));
    let halted = contended(&lockref, 0, |cpu| lockref.put_or_lock(cpu));
    assert_eq!(halted, Put::Done(CountChange { locked: true, halts: 1, ..CountChange::default() }));
    assert_eq!(lockref.count(), 2);
}

#[test]
fn changes_wait_for_a_held_lock() {
    check_waits::<UNBOUNDED>();
    check_waits::<DEFAULT_TRIES>();
    check_waits::<0>();
}

#[test]
fn failed_tries_are_counted_and_bounded() {
    fn tries<const TRIES: u32>(rivals: u32) -> (Option<bool>, u32) {
        let lockref = Lockref::<TRIES>::new(1);
        let mut counted = CountChange::default();
        let remaining = Cell::new(rivals);
        let result = lockref.try_change(&mut counted, |count| {
            if remaining.get() > 0 {
                // Another CPU takes a reference between the load and the exchange.
                remaining.set(remaining.get() - 1);
                uncontended(&lockref, |cpu| lockref.get(cpu));
            }
            Some(count + 1)
        });
        (result, counted.retries)
    }
    assert_eq!(tries::<3>(2), (Some(true), 2));
    assert_eq!(tries::<3>(3), (None, 3));
    assert_eq!(tries::<UNBOUNDED>(1000), (Some(true), 1000));
    assert_eq!(tries::<0>(0), (None, 0));
}
