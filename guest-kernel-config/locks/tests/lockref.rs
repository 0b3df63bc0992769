//! The lockrefs under real threads.

mod crowd;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crowd::Crowd;
use locks::Section;
use locks::lockref::{BoundedLockref, Dead, LockedLockref, Lockref, Put, UnboundedLockref};

/// All CPUs get and put, and change the count under the lock in between.
fn contend<const TRIES: u32>(lockref: &Lockref<TRIES>, spin_threshold: u32) {
    let (crowd, section) = (Crowd::new(4, spin_threshold), Section::new());
    let retries = AtomicU64::new(0);
    crowd.run(|cpu| {
        for round in 0..4_000 {
            let got = lockref.get(cpu);
            assert!(TRIES == 0 || got.retries <= TRIES);
            retries.fetch_add(got.retries.into(), Ordering::Relaxed);
            if round % 16 == 0 {
                lockref.lock(cpu);
                let before = lockref.count();
                assert_eq!(section.run(cpu.id, 20), Ok(()));
                assert_eq!(lockref.count(), before, "it changes under the lock");
                lockref.unlock(cpu);
            }
            match lockref.put_or_lock(cpu) {
                Put::Done(_) => (),
                Put::Locked(_) => panic!("the first reference is still there"),
            }
        }
    });
    assert_eq!(lockref.count(), 1, "a reference is lost");
    assert!(TRIES != 0 || retries.into_inner() == 0);
}

#[test]
fn no_reference_is_lost_and_the_lock_excludes() {
    for spin_threshold in [0, 20, 500] {
        contend(&UnboundedLockref::new(1), spin_threshold);
        contend(&BoundedLockref::new(1), spin_threshold);
        contend(&Lockref::<1>::new(1), spin_threshold);
        contend(&LockedLockref::new(1), spin_threshold);
    }
}

/// All CPUs get and put until it is dead; the one that drops the last reference marks it dead.
fn dies<const TRIES: u32>() {
    for _ in 0..20 {
        let (crowd, lockref) = (Crowd::new(4, 5), Lockref::<TRIES>::new(1));
        let deaths = AtomicU32::new(0);
        crowd.run(|cpu| {
            let put = || {
                if let Put::Locked(_) = lockref.put_or_lock(cpu) {
                    assert_eq!(lockref.count(), 1, "there is another reference");
                    lockref.mark_dead();
                    deaths.fetch_add(1, Ordering::SeqCst);
                    lockref.unlock(cpu);
                }
            };
            if cpu.id == 0 {
                put();
            }
            while lockref.get_not_dead(cpu).is_ok() {
                put();
            }
            assert!(lockref.is_dead());
            assert_eq!(lockref.get_not_dead(cpu), Err(Dead));
        });
        assert_eq!(deaths.into_inner(), 1, "it dies once");
    }
}

#[test]
fn the_last_reference_kills_and_the_dead_stay_dead() {
    dies::<{ locks::lockref::UNBOUNDED }>();
    dies::<{ locks::lockref::USUAL_TRIES }>();
    dies::<1>();
    dies::<0>();
}
