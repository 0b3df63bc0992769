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
fn rivalry<const TRIES: u32, R>(
    lockref: &Lockref<TRIES>,
    looks: u32,
    act: impl Fn(&Cpu<'_, Stage<&Lockref<TRIES>>>) -> R,
) -> R {
    let stage = Stage { spin_threshold: looks, ..Stage::new(lockref, release) };
    lockref.lock(&stage.cpu(0));
    let done = act(&stage.cpu(1));
    assert!(stage.pauses.get() + stage.halts.get() > 0, "it did not wait");
    done
}

/// Runs `act` on a CPU without rivals.
fn alone<const TRIES: u32, R>(
    lockref: &Lockref<TRIES>,
    act: impl Fn(&Cpu<'_, Stage<&Lockref<TRIES>>>) -> R,
) -> R {
    act(&Stage::without_waits(lockref).cpu(1))
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
                // Another CPU takes a reference between the load and the exchange.
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
