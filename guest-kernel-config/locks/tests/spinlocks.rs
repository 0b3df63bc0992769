//! Every spinlock, by the same tests: a new lock needs one line at the end.

mod common;

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::Off;
use common::bench::Bench;
use locks::{
    Awaited, Bypass, ClhLock, CnaLock, Cpu, FlexGuardLock, Handoff, McsLock, McsTpLock,
    NativeTicketLock, OwnerConferLock, OwnerYieldLock, PreemptableTicketLock,
    PvPreemptableTicketLock, PvQueuedLock, PvTicketLock, QueuedLock, RawLock, ReciprocatingLock,
    RestrictedTicketLock, ShuffledLock, SliceAwareLock, SmallNativeTicketLock, SmallPvTicketLock,
    TestAndSetLock, TooManyCpus, TwaLock, UnfairQueuedLock, Unwatched, Watch,
};

/// How long a crowd contends at most, once its small tickets have wrapped: waiters that only spin hand over no faster
/// than the machine switches threads, so that beside other work all rounds would take a minute.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// More acquisitions than there are small tickets.
const WRAPPED: u64 = 256;

/// Mutual exclusion, progress, and the order of tickets, over the wrap of small ones.
fn excludes<L: RawLock + Default + Sync>() {
    for (count, rounds, spin_threshold) in [(2, 5_000_u32, 50), (4, 1_000, 0), (8, 300, 20)] {
        let bench = Bench::<L>::new(count);
        let (began, taken) = (Instant::now(), AtomicU64::new(0));
        bench.run(
            count,
            spin_threshold,
            || Unwatched,
            |cpu| {
                for round in 0..rounds {
                    let how = bench.lock.lock(cpu);
                    let so_far = taken.fetch_add(1, Ordering::Relaxed);
                    if round % 128 == 0 {
                        // Makes sure that, on any machine, a waiter meets a holder that is off its
                        // CPU.
                        thread::yield_now();
                    }
                    bench.work(cpu, &how);
                    if so_far > WRAPPED && began.elapsed() > LONG_ENOUGH {
                        break;
                    }
                }
            },
        );
        let (taken, all) = (taken.into_inner(), u64::from(rounds) * count as u64);
        assert!(
            taken == all || taken > WRAPPED && began.elapsed() > LONG_ENOUGH,
            "{taken} of {all}"
        );
        assert!(!bench.lock.is_contended());
    }
}

/// With PV off a lock still excludes, and there are no halts or kicks.
fn spins<L: RawLock + Default + Sync>() {
    let bench = Bench::<L>::new(3);
    common::run(&bench.pv, 3, |id| {
        let (waiters, handoff) = (&bench.waiters, Handoff::default());
        let cpu = Cpu { id, spin_threshold: 0, pv: &Off, waiters, watch: Unwatched, handoff };
        for _ in 0..1_000 {
            let taken = bench.lock.lock(&cpu);
            assert_eq!(taken.halts, 0);
            bench.work(&cpu, &taken);
        }
    });
    assert_eq!(bench.wrong.into_inner(), 0);
}

/// Uncontended, across the wrap of large tickets.
fn wraps<L: RawLock + Default + Sync>() {
    let bench = Bench::<L>::new(1);
    let cpu = bench.cpu(0, 10, Unwatched);
    for round in 0..70_000 {
        let taken =
            if round % 3 == 0 { bench.lock.try_lock(&cpu) } else { Some(bench.lock.lock(&cpu)) };
        let taken = taken.expect("it is uncontended");
        assert_eq!((taken.slow, taken.halts), (false, 0));
        bench.work(&cpu, &taken);
    }
    assert_eq!(bench.wrong.into_inner(), 0);
}

/// What a CPU waits for that has joined a queue.
type Awaiting = Mutex<Vec<(usize, Awaited)>>;

/// Reports when its CPU waits.
struct Waits<'a> {
    cpu: usize,
    waiting: &'a AtomicUsize,
    awaiting: &'a Awaiting,
}

impl Watch for Waits<'_> {
    fn spinning(&self, lock: usize, _ticket: u16) {
        self.queued(lock, None);
    }

    fn queued(&self, _lock: usize, awaited: Option<Awaited>) {
        let queued = awaited.map(|awaited| (self.cpu, awaited));
        self.awaiting.lock().expect("no CPU panics").extend(queued);
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

/// CPUs join one after the other while CPU 0 holds the lock: all are served, and in that order if
/// the lock claims to be FIFO. If it tells places, then each time that of one waiter: the one that is
/// served next.
fn serves<L: RawLock + Default + Sync>() {
    const COUNT: usize = 5;
    let bench = Bench::<L>::new(COUNT);
    let (waiting, awaiting) = (AtomicUsize::new(0), Awaiting::default());
    let order = Mutex::new(Vec::new());
    // Waiters that are next, and all whose place the lock tells.
    let places = |served: &[usize]| {
        let mut left = awaiting.lock().expect("no CPU panics").clone();
        left.retain(|(cpu, _)| !served.contains(cpu));
        let place = |(_, awaited)| bench.lock.releases_before(&bench.waiters, awaited);
        let next = left.iter().copied().filter(|it| place(*it).expect("it has a place") <= 1);
        (next.map(|(cpu, _)| cpu).collect::<Vec<_>>(), left.len())
    };
    let expected = Mutex::new(Vec::new());
    let is_held = AtomicBool::new(false);
    bench.run(
        COUNT,
        30,
        || Unwatched,
        |cpu| {
            let watch = Waits { cpu: cpu.id, waiting: &waiting, awaiting: &awaiting };
            let cpu = &bench.cpu(cpu.id, 30, watch);
            if cpu.id == 0 {
                let taken = bench.lock.lock(cpu);
                assert!(!bench.lock.is_contended());
                is_held.store(true, Ordering::SeqCst);
                until(|| waiting.load(Ordering::SeqCst) == COUNT - 1);
                // A test-and-set lock does not know.
                assert!(bench.lock.is_contended() || L::CPUS == u32::MAX);
                bench.work(cpu, &taken);
                return;
            }
            until(|| {
                is_held.load(Ordering::SeqCst) && waiting.load(Ordering::SeqCst) == cpu.id - 1
            });
            let taken = bench.lock.lock(cpu);
            let mut order = order.lock().expect("no CPU panics");
            order.push(cpu.id);
            let (next, left) = places(&order);
            assert_eq!(next.len(), left.min(1), "{next:?} of {left}");
            expected.lock().expect("no CPU panics").extend(next);
            drop(order);
            bench.work(cpu, &taken);
        },
    );
    let mut order = order.into_inner().expect("no CPU panics");
    let expected = expected.into_inner().expect("no CPU panics");
    // A newcomer may come before the one that is next.
    assert!(L::BYPASS == Bypass::Unbounded || order.ends_with(&expected), "{expected:?} {order:?}");
    if !L::FIFO {
        order.sort_unstable();
    }
    assert_eq!(order, [1, 2, 3, 4]);
}

/// Only one of many CPUs that try gets the lock, and the others leave no trace.
fn tries<L: RawLock + Default + Sync>() {
    let bench = Bench::<L>::new(4);
    let (taken, waited) = (AtomicU64::new(0), AtomicU64::new(0));
    bench.run(
        4,
        10,
        || Unwatched,
        |cpu| {
            for round in 0..4_000 {
                let how = match round % 4 {
                    0 => Some(bench.lock.lock(cpu)),
                    _ => bench.lock.try_lock(cpu),
                };
                let Some(how) = how else { continue };
                if round % 4 == 0 {
                    waited.fetch_add(1, Ordering::Relaxed);
                }
                taken.fetch_add(1, Ordering::Relaxed);
                bench.work(cpu, &how);
            }
        },
    );
    assert_eq!(waited.into_inner(), 4_000);
    let cpu = bench.cpu(0, 10, Unwatched);
    let held = bench.lock.try_lock(&cpu).expect("it is free");
    let other = bench.cpu(1, 10, Unwatched);
    assert!(bench.lock.try_lock(&other).is_none(), "CPU 0 has it");
    bench.work(&cpu, &held);
    assert!(bench.lock.try_lock(&other).is_some());
}

/// A CPU that waits for a release sees one, though others take the lock all the time.
fn is_seen_released<L: RawLock + Default + Sync>() {
    let bench = Bench::<L>::new(3);
    let is_over = AtomicBool::new(false);
    bench.run(
        3,
        10,
        || Unwatched,
        |cpu| {
            if cpu.id == 0 {
                for _ in 0..2_000 {
                    bench.lock.wait_until_released(cpu);
                }
                is_over.store(true, Ordering::SeqCst);
            }
            while !is_over.load(Ordering::SeqCst) {
                let taken = bench.lock.lock(cpu);
                bench.work(cpu, &taken);
            }
        },
    );
}

/// A CPU that waits for a holder's release sees the holder's writes.
fn release_follows_the_work<L: RawLock + Default + Sync>() {
    let bench = Bench::<L>::new(2);
    let (is_held, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    bench.run(
        2,
        10,
        || Unwatched,
        |cpu| {
            if cpu.id == 0 {
                let taken = bench.lock.lock(cpu);
                is_held.store(true, Ordering::SeqCst);
                thread::yield_now();
                is_done.store(true, Ordering::SeqCst);
                bench.work(cpu, &taken);
            } else {
                until(|| is_held.load(Ordering::SeqCst));
                bench.lock.wait_until_released(cpu);
                assert!(is_done.load(Ordering::SeqCst));
            }
        },
    );
}

/// More CPUs than a lock can count are refused with an error that says so.
fn refuses<L: RawLock>() {
    let most = L::CPUS;
    assert_eq!(L::check_cpus(most), Ok(()));
    let Some(cpus) = most.checked_add(1) else { return };
    let error = L::check_cpus(cpus).expect_err("one too many");
    assert_eq!(error, TooManyCpus { cpus, most });
    let line = format!("{cpus} CPUs are more than the {most} that this lock can count");
    assert_eq!(error.to_string(), line);
}

/// Takes a lock of the same kind at each step at which a handler may run.
struct Nested<'a, L> {
    bench: &'a Bench<L>,
    inner: &'a Bench<L>,
    id: usize,
    left: Cell<u32>,
}

impl<L: RawLock + Default + Sync> Watch for &Nested<'_, L> {
    fn queued(&self, _lock: usize, _: Option<Awaited>) {
        self.handle();
    }

    fn spinning(&self, _lock: usize, _ticket: u16) {
        self.handle();
    }

    fn reached(&self, _place: locks::Place) {
        self.handle();
    }
}

impl<L: RawLock + Default + Sync> Nested<'_, L> {
    /// An interrupt handler on the same CPU, sometimes nested.
    fn handle(&self) {
        if self.left.get() == 0 {
            return;
        }
        self.left.set(self.left.get() - 1);
        // The records and nodes of this CPU are in the outer lock's table.
        let (pv, waiters) = (&self.bench.pv, &self.bench.waiters);
        let (handoff, spin_threshold) = (Handoff::default(), 5);
        let cpu = Cpu { id: self.id, spin_threshold, pv, waiters, watch: self, handoff };
        let taken = self.inner.lock.lock(&cpu);
        let alone = self.inner.section.run(self.id, 20).is_ok();
        assert!(alone && taken.ticket.is_some() == (L::TICKETS != 0));
        self.inner.lock.unlock(&cpu);
    }
}

/// Handlers that run while a CPU waits take another lock.
fn nests<L: RawLock + Default + Sync>() {
    let (bench, inner) = (Bench::<L>::new(4), Bench::<L>::new(4));
    bench.run(
        4,
        5,
        || Unwatched,
        |cpu| {
            let left = Cell::new(0);
            let watch = Nested { bench: &bench, inner: &inner, id: cpu.id, left };
            let outer = bench.cpu(cpu.id, 5, &watch);
            for _ in 0..1_000 {
                // One handler at a time: two would wait for the same lock on one CPU.
                outer.watch.left.set(1);
                let taken = bench.lock.lock(&outer);
                outer.watch.left.set(0);
                bench.work(&outer, &taken);
            }
        },
    );
}

macro_rules! suite {
    ($($module:ident: $lock:ty, $fifo:expr, $cpus:expr;)*) => { $(
        mod $module {
            use super::*;

            #[test]
            fn excludes() {
                super::excludes::<$lock>();
            }

            #[test]
            fn spins_with_pv_off() {
                super::spins::<$lock>();
            }

            #[test]
            fn wraps() {
                super::wraps::<$lock>();
            }

            #[test]
            fn serves_in_the_order_it_promises() {
                super::serves::<$lock>();
            }

            #[test]
            fn can_be_tried() {
                super::tries::<$lock>();
            }

            #[test]
            fn is_seen_released() {
                super::is_seen_released::<$lock>();
                super::release_follows_the_work::<$lock>();
            }

            #[test]
            fn refuses_too_many_cpus() {
                assert_eq!((<$lock>::FIFO, <$lock>::CPUS), ($fifo, $cpus));
                super::refuses::<$lock>();
            }

            #[test]
            fn nests() {
                super::nests::<$lock>();
            }
        }
    )* };
}

suite! {
    native: NativeTicketLock, true, 32767;
    small_native: SmallNativeTicketLock, true, 127;
    pv: PvTicketLock, true, 128;
    small_pv: SmallPvTicketLock, true, 127;
    preemptable: PreemptableTicketLock, false, 128;
    pv_preemptable: PvPreemptableTicketLock, false, 128;
    test_and_set: TestAndSetLock, false, u32::MAX;
    queued: QueuedLock, true, 128;
    pv_queued: PvQueuedLock, false, 128;
    unfair_queued: UnfairQueuedLock, false, 128;
    mcs: McsLock, true, 128;
    mcs_tp: McsTpLock, false, 128;
    cna: CnaLock, false, 128;
    shuffled: ShuffledLock, false, 128;
    clh: ClhLock, true, 128;
    twa: TwaLock, true, 32767;
    reciprocating: ReciprocatingLock, false, 128;
    restricted: RestrictedTicketLock, false, 128;
    i_spinlock: SliceAwareLock, true, 32767;
    flexguard: FlexGuardLock, false, 128;
    owner_confer: OwnerConferLock, false, 128;
    owner_yield: OwnerYieldLock, false, 128;
}
