//! The common tests of all spinlocks: a new lock needs one line at the end.

mod common;

use std::any::TypeId;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::Bench;
use common::grammar::Grammar;
use locks::{
    ClhLock, CnaLock, FlexGuardLock, McsLock, McsTpLock, NativeTicketLock, OwnerConferClassicLock,
    OwnerConferLock, OwnerYieldLock, Position, PreemptableTicketLock, PvPreemptableTicketLock,
    PvQueuedLock, PvTicketLock, QueuedLock, RawLock, ReciprocatingLock, RestrictedTicketLock,
    ShuffledLock, SliceAwareLock, SmallNativeTicketLock, SmallPvTicketLock, TestAndSetLock,
    TooManyCpus, TwaLock, UnfairQueuedLock, Unwatched,
};

/// With PV off, mutual exclusion holds, without halts or kicks.
fn check_without_pv<L: RawLock + Default + Sync>() {
    let bench = Bench::<L, false>::new(3);
    bench.run(|id| {
        let cpu = bench.cpu(id, 0, Unwatched);
        for _ in 0..1_000 {
            let taken = bench.lock.lock(&cpu);
            assert_eq!(taken.halts, 0);
            bench.work(&cpu, &taken);
        }
    });
    assert_eq!(bench.violations.into_inner(), 0);
}

/// The CPUs that have joined a queue, and the words that show their places.
type Awaiting = Mutex<Vec<(usize, Position)>>;

/// Whether the lock reports its waiters: all CPUs poll the word of the other locks.
fn knows_waiters<L: 'static>() -> bool {
    let unaware = [TypeId::of::<TestAndSetLock>(), TypeId::of::<OwnerConferClassicLock>()];
    !unaware.contains(&TypeId::of::<L>())
}

/// CPUs join one after the other while CPU 0 holds the lock: all are served, in that order if the
/// lock claims to be FIFO. If the lock reports places, exactly one waiter is next each time: the
/// waiter served next. An observer sees the steps of each CPU in a valid order.
fn check_order<L: RawLock + Default + Sync + 'static>() {
    const COUNT: usize = 5;
    let bench = Bench::<L, true>::new(COUNT);
    let (waiting, awaiting) = (AtomicUsize::new(0), Awaiting::default());
    let order = Mutex::new(Vec::new());
    // The waiters that are next, and the number of waiters with a place.
    let places = |served: &[usize]| {
        let mut queue = awaiting.lock().expect("no CPU panics").clone();
        queue.retain(|(cpu, _)| !served.contains(cpu));
        let place = |(_, position)| bench.lock.releases_before(&bench.waiters, position);
        let next = queue.iter().copied().filter(|cpu| place(*cpu).expect("it has a place") <= 1);
        (next.map(|(cpu, _)| cpu).collect::<Vec<_>>(), queue.len())
    };
    let expected = Mutex::new(Vec::new());
    let is_held = AtomicBool::new(false);
    bench.run(|id| {
        let watch = Grammar::new(|position| {
            let queued = position.map(|position| (id, position));
            awaiting.lock().expect("no CPU panics").extend(queued);
            waiting.fetch_max(id, Ordering::SeqCst);
        });
        let cpu = &bench.cpu(id, 30, watch);
        if id == 0 {
            let taken = bench.lock.lock(cpu);
            assert!(!bench.lock.is_contended());
            is_held.store(true, Ordering::SeqCst);
            bench.pv.wait_until(|| waiting.load(Ordering::SeqCst) == COUNT - 1);
            bench.pv.wait_until(|| bench.lock.is_contended() || !knows_waiters::<L>());
            bench.work(cpu, &taken);
            return;
        }
        bench.pv.wait_until(|| {
            is_held.load(Ordering::SeqCst) && waiting.load(Ordering::SeqCst) == id - 1
        });
        let taken = bench.lock.lock(cpu);
        let mut order = order.lock().expect("no CPU panics");
        order.push(id);
        let (next, queue) = places(&order);
        assert_eq!(next.len(), queue.min(1), "{next:?} of {queue}");
        expected.lock().expect("no CPU panics").extend(next);
        drop(order);
        bench.work(cpu, &taken);
    });
    assert_eq!(bench.violations.load(Ordering::Relaxed), 0, "not alone, or not in turn");
    let mut order = order.into_inner().expect("no CPU panics");
    let expected = expected.into_inner().expect("no CPU panics");
    // A newcomer may be served before the next waiter.
    assert!(L::BYPASS.bound(2).is_none() || order.ends_with(&expected), "{expected:?} {order:?}");
    if !L::FIFO {
        order.sort_unstable();
    }
    assert_eq!(order, [1, 2, 3, 4]);
}

/// `try_lock` takes a free lock at once, and fails on a held lock.
fn check_try_lock<L: RawLock + Default + Sync>() {
    let bench = Bench::<L, true>::new(2);
    let [holder, newcomer] = [0, 1].map(|id| bench.cpu(id, 10, Unwatched));
    for _ in 0..2 {
        let taken = bench.lock.try_lock(&holder).expect("it is free");
        assert_eq!((taken.slow, taken.halts), (false, 0));
        assert!(bench.lock.try_lock(&newcomer).is_none(), "CPU 0 has it");
        assert!(!bench.lock.is_contended(), "who tries does not wait");
        bench.work(&holder, &taken);
    }
    assert!(bench.lock.try_lock(&newcomer).is_some());
}

/// More CPUs than a lock can count are rejected with an error that states the limit.
fn check_limit<L: RawLock>() {
    let max = L::CPUS;
    assert_eq!(L::check_cpus(max), Ok(()));
    let Some(cpus) = max.checked_add(1) else { return };
    let error = L::check_cpus(cpus).expect_err("one too many");
    assert_eq!(error, TooManyCpus { cpus, max });
    let line = format!("{cpus} CPUs: this lock supports at most {max}");
    assert_eq!(error.to_string(), line);
}

macro_rules! suite {
    ($($module:ident: $lock:ty, $layout:expr, $fifo:expr, $cpus:expr;)*) => { $(
        mod $module {
            use super::*;

            #[test]
            fn excludes_with_pv_off() {
                super::check_without_pv::<$lock>();
            }

            #[test]
            fn serves_in_its_documented_order() {
                super::check_order::<$lock>();
            }

            #[test]
            fn try_lock_takes_only_a_free_lock() {
                super::check_try_lock::<$lock>();
            }

            #[test]
            fn has_its_layout_and_rejects_too_many_cpus() {
                assert_eq!((size_of::<$lock>(), align_of::<$lock>()), $layout);
                assert_eq!((<$lock>::FIFO, <$lock>::CPUS), ($fifo, $cpus));
                super::check_limit::<$lock>();
            }
        }
    )* };
}

suite! {
    native: NativeTicketLock, (4, 4), true, 32767;
    small_native: SmallNativeTicketLock, (4, 4), true, 127;
    pv: PvTicketLock, (4, 4), true, 128;
    small_pv: SmallPvTicketLock, (4, 4), true, 127;
    preemptable: PreemptableTicketLock, (6, 2), false, 128;
    pv_preemptable: PvPreemptableTicketLock, (6, 2), false, 128;
    test_and_set: TestAndSetLock, (2, 2), false, u32::MAX;
    queued: QueuedLock, (4, 4), true, 128;
    pv_queued: PvQueuedLock, (4, 4), false, 128;
    unfair_queued: UnfairQueuedLock, (4, 4), false, 128;
    mcs: McsLock, (8, 8), true, 128;
    mcs_tp: McsTpLock, (16, 8), false, 128;
    cna: CnaLock, (16, 8), false, 128;
    shuffled: ShuffledLock, (4, 4), false, 128;
    clh: ClhLock, (8, 8), true, 128;
    twa: TwaLock, (4, 4), true, 32767;
    reciprocating: ReciprocatingLock, (8, 8), false, 128;
    restricted: RestrictedTicketLock, (32, 8), false, 128;
    i_spinlock: SliceAwareLock, (4, 4), true, 32767;
    flexguard: FlexGuardLock, (4, 4), false, 128;
    owner_confer: OwnerConferLock, (8, 8), false, 128;
    owner_confer_classic: OwnerConferClassicLock, (4, 4), false, 128;
    owner_yield: OwnerYieldLock, (8, 8), false, 128;
}
