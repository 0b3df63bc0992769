//! Checks of the lockrefs.

use crate::lockref::{Dead, Lockref, Put};
use crate::machine::{Setup, SleepCpu, THREE, TWO, run, run_with};
use crate::sync::{AtomicU32, Ordering};
use in_the_model::{Check, memory};
use std::sync::atomic::{AtomicUsize as Plain, Ordering::SeqCst};

/// A lockref, and data that its references protect.
struct CheckedLockref<const TRIES: u32> {
    lockref: Lockref<TRIES>,
    /// Another lockref, for interrupt handlers.
    inner: Lockref<TRIES>,
    /// Written once by each CPU before it drops its reference.
    written: [AtomicU32; 4],
    deaths: Plain,
    /// Uses left until the last user frees the lockref.
    remaining: Plain,
}

type LockrefCpu<const TRIES: u32> = SleepCpu<CheckedLockref<TRIES>>;

fn subject<const TRIES: u32>(setup: Setup, count: i32) -> CheckedLockref<TRIES> {
    CheckedLockref {
        lockref: Lockref::new(count),
        inner: Lockref::new(1),
        written: core::array::from_fn(|_| AtomicU32::new(0)),
        deaths: Plain::new(0),
        remaining: Plain::new(setup.cpus),
    }
}

/// Checks that the count does not change while the lock is held.
fn check_count_is_stable<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let lockref = &vcpu.machine.subject.lockref;
    vcpu.machine.inside.enter(vcpu.id);
    let before = lockref.count();
    assert_eq!(lockref.count(), before, "the count changes under the lock");
    vcpu.machine.inside.leave(vcpu.id);
}

fn get_and_put<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let (lockref, cpu) = (&vcpu.machine.subject.lockref, vcpu.cpu());
    let got = lockref.get(&cpu);
    assert!(TRIES == 0 || got.retries <= TRIES, "more tries than it may");
    assert!(matches!(lockref.put_or_lock(&cpu), Put::Done(_)), "the first reference is there");
}

/// CPU 0 locks; the others get and put.
fn one_locks<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    if vcpu.id == 0 { lock(vcpu) } else { get_and_put(vcpu) }
}

fn lock<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let (lockref, cpu) = (&vcpu.machine.subject.lockref, vcpu.cpu());
    lockref.lock(&cpu);
    check_count_is_stable(vcpu);
    lockref.unlock(&cpu);
}

fn get_put_and_lock<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    get_and_put(vcpu);
    lock(vcpu);
    get_and_put(vcpu);
}

fn check_one_reference<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let count = vcpu.machine.subject.lockref.count();
    assert_eq!(count, 1, "a reference is lost");
}

/// Each CPU drops its reference; the CPU that drops the last one sees all writes of the others,
/// and marks the lockref dead.
fn put_last<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let subject = &vcpu.machine.subject;
    subject.written[vcpu.id].store(1, Ordering::Relaxed);
    if let Put::Locked(_) = subject.lockref.put_or_lock(&vcpu.cpu()) {
        let slots = &subject.written[..vcpu.machine.cpus()];
        let all_written = slots.iter().all(|written| written.load(Ordering::Relaxed) == 1);
        assert!(all_written, "the last does not see what the others did");
        kill(vcpu);
    }
}

/// Marks the lockref dead. The caller holds the lock and has the last reference.
fn kill<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let subject = &vcpu.machine.subject;
    check_count_is_stable(vcpu);
    assert_eq!(subject.lockref.count(), 1, "there is another reference");
    subject.lockref.mark_dead();
    assert!(subject.lockref.is_dead(), "it does not die");
    subject.deaths.fetch_add(1, SeqCst);
    subject.lockref.unlock(&vcpu.cpu());
}

/// CPU 0 drops the first reference; the others look the lockref up.
fn look_up<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let (subject, cpu) = (&vcpu.machine.subject, vcpu.cpu());
    let lockref = &subject.lockref;
    let is_mine = vcpu.id == 0 || lockref.get_not_dead(&cpu).is_ok();
    assert!(!is_mine || !lockref.is_dead(), "it died with a reference");
    if is_mine && matches!(lockref.put_or_lock(&cpu), Put::Locked(_)) {
        kill(vcpu);
    }
    let was_dead = lockref.is_dead();
    let is_dead = lockref.get_not_dead(&cpu) == Err(Dead);
    assert!(!was_dead || is_dead, "the dead comes to life");
    if !is_dead && matches!(lockref.put_or_lock(&cpu), Put::Locked(_)) {
        kill(vcpu);
    }
}

fn check_dead<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let subject = &vcpu.machine.subject;
    assert!(subject.lockref.is_dead() && subject.deaths.load(SeqCst) == 1, "it dies once");
}

/// Each CPU locks once, and the last frees the lockref, although others may not have returned
/// from their release.
fn lock_and_free<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let (subject, cpu) = (&vcpu.machine.subject, vcpu.cpu());
    subject.lockref.lock(&cpu);
    let is_last = subject.remaining.fetch_sub(1, SeqCst) == 1;
    subject.lockref.unlock(&cpu);
    if is_last {
        memory::free(&subject.lockref);
    }
}

fn lock_inner<const TRIES: u32>(vcpu: &LockrefCpu<TRIES>) {
    let (inner, cpu) = (&vcpu.machine.subject.inner, vcpu.cpu());
    inner.lock(&cpu);
    inner.unlock(&cpu);
}

/// Checks a lockref with `count` references.
fn check<const TRIES: u32>(
    setup: Setup,
    count: i32,
    work: fn(&LockrefCpu<TRIES>),
    done: fn(&LockrefCpu<TRIES>),
) {
    run(setup, subject::<TRIES>(setup, count), work, done);
}

/// Handlers take another lockref's lock at any step.
fn check_nested<const TRIES: u32>() {
    let setup = Setup { irq: 40, ..THREE };
    run_with(setup, subject::<TRIES>(setup, 1), get_put_and_lock, lock_inner, check_one_reference);
}

const fn checks<const TRIES: u32>(subject: &'static str) -> [Check; 8] {
    const MANY: Setup = Setup { cpus: 4, ..TWO };
    const MANY_SPIN: Setup = Setup { spin: 1, irq: 40, ..MANY };
    [
        Check::new(subject, "last", || check::<TRIES>(THREE, 3, put_last, check_dead), 1, 500),
        Check::new(subject, "two", || check::<TRIES>(TWO, 1, one_locks, check_one_reference), 2, 0),
        Check::new(subject, "three", || check::<TRIES>(THREE, 1, one_locks, check_one_reference), 1, 0),
        Check::new(subject, "dead", || check::<TRIES>(TWO, 1, look_up, check_dead), 2, 500),
        Check::new(subject, "freed", || check::<TRIES>(THREE, 1, lock_and_free, |_| ()), 1, 500),
        Check::new(subject, "many", || check::<TRIES>(MANY_SPIN, 1, get_put_and_lock, check_one_reference), 0, 500),
        Check::new(subject, "nested", check_nested::<TRIES>, 0, 500),
        Check::new(subject, "many_dead", || check::<TRIES>(MANY, 1, look_up, check_dead), 0, 500),
    ]
}

/// All checks: unbounded, one try and then the lock, only the lock.
pub const CHECKS: &[&[Check]] = &[
    &checks::<{ u32::MAX }>("unbounded tries"),
    &checks::<1>("one try"),
    &checks::<0>("no tries"),
];
