//! The locks under real threads: a CPU is a thread, a halt is `park`, a kick is
//! `unpark` (whose token is the sticky bit).

mod progress;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use locks::{
    Awaited, Bypass, Cpu, Handoff, McsLock, NativeTicketLock, Place, Pv, PvPreemptableTicketLock,
    PvQueuedLock, PvTicketLock, RawLock, Released, Restricted, Section, SmallPvTicketLock, Taken,
    TestAndSetLock, Unwatched, WaitTable, Watch, settle,
};

use progress::Progress;

/// How long waiters that only spin are tried: beside other work they may take a second for some hundred handoffs, as
/// each needs both threads on a CPU.
const SPINNING: Duration = Duration::from_secs(5);

struct Threads {
    handles: Vec<OnceLock<Thread>>,
    hints: AtomicU64,
    halts: AtomicU64,
    kicks: AtomicU64,
}

impl Threads {
    fn new(count: usize) -> Self {
        Self {
            handles: (0..count).map(|_| OnceLock::new()).collect(),
            hints: AtomicU64::new(0),
            halts: AtomicU64::new(0),
            kicks: AtomicU64::new(0),
        }
    }
}

impl Pv for Threads {
    fn spin_hint(&self) {
        // On a busy machine a queue that only spins would wait for the end of a time slice each
        // time that it meets a thread that is off its CPU.
        if self.hints.fetch_add(1, Ordering::Relaxed) % 256 == 255 {
            thread::yield_now();
        }
        std::hint::spin_loop();
    }

    fn lock_spinning(&self, _ticket: u16) {
        self.halts.fetch_add(1, Ordering::Relaxed);
        thread::park();
    }

    fn unlock_kick(&self, cpu: usize) {
        self.kicks.fetch_add(1, Ordering::Relaxed);
        self.handles[cpu].get().expect("a kicked CPU has started").unpark();
    }
}

/// A lock that does not exclude.
struct Open;

impl RawLock for Open {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;
    const CPUS: u32 = u32::MAX;

    fn lock<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> Taken {
        Taken::default()
    }

    fn unlock<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> Released {
        Released::default()
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) {}

    fn try_lock<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> Option<Taken> {
        Some(Taken::default())
    }

    fn is_contended(&self) -> bool {
        false
    }
}

/// A CPU's state, as its watcher was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Nothing,
    Entering,
    Spinning(Option<u16>),
    Halted(Option<u16>),
    Holding,
    ToKick,
    Kicking,
}

/// Fails if a reported step cannot follow the one before.
struct Grammar(Cell<At>);

impl Grammar {
    fn step(&self, from: &[At], to: At) {
        let at = self.0.replace(to);
        assert!(from.contains(&at), "{at:?} is followed by {to:?}");
    }
}

impl Watch for Grammar {
    fn entering(&self, _: Option<usize>) {
        self.step(&[At::Nothing], At::Entering);
    }

    fn spinning(&self, _lock: usize, ticket: u16) {
        self.step(&[At::Entering], At::Spinning(Some(ticket)));
    }

    fn queued(&self, _lock: usize, _: Option<Awaited>) {
        self.step(&[At::Entering], At::Spinning(None));
    }

    fn spin_looks(&self) -> u32 {
        7
    }

    fn spun_out(&self, ticket: Option<u16>) {
        self.step(&[At::Spinning(ticket)], At::Spinning(ticket));
    }

    fn halting(&self, ticket: Option<u16>) {
        self.step(&[At::Spinning(ticket)], At::Halted(ticket));
    }

    fn resumed(&self, ticket: Option<u16>) {
        self.step(&[At::Halted(ticket)], At::Spinning(ticket));
    }

    fn taken(&self, _lock: usize, ticket: Option<u16>) {
        self.step(&[At::Entering, At::Spinning(ticket)], At::Holding);
    }

    fn released(&self) {
        let is_to_kick = self.0.get() == At::ToKick;
        let to = if is_to_kick { At::Kicking } else { At::Nothing };
        self.step(&[At::Holding, At::ToKick], to);
    }

    fn before_kick(&self, _lock: usize, _ticket: Option<u16>) {
        self.step(&[At::Holding], At::ToKick);
    }

    fn kicked(&self) {
        self.step(&[At::Kicking], At::Nothing);
    }

    fn reached(&self, place: Place) {
        let at = self.0.get();
        let possible = match place {
            Place::BeforeFlag => matches!(at, At::Spinning(_)),
            Place::FlagToHalt => matches!(at, At::Halted(_)),
            Place::ReleaseToKick => at == At::Kicking,
        };
        assert!(possible, "{place:?} is reached at {at:?}");
    }
}

struct Outcome {
    violations: u64,
    slow: u64,
    halts: u64,
    kicks: u64,
}

/// `count` threads take `lock` `rounds` times each, or until `enough` says so.
fn contend<L: RawLock + Sync>(
    lock: &L,
    count: usize,
    rounds: u32,
    spin_threshold: u32,
    enough: impl Fn(u64) -> bool + Sync,
) -> Outcome {
    let crowd = Crowd { count, rounds, spin_threshold, handoff: Handoff::default() };
    contend_watched(lock, crowd, enough, || Unwatched)
}

/// The threads that contend.
#[derive(Clone, Copy)]
struct Crowd {
    count: usize,
    rounds: u32,
    spin_threshold: u32,
    handoff: Handoff,
}

/// As [`contend`], each thread with its own `watcher`.
fn contend_watched<L: RawLock + Sync, W: Watch>(
    lock: &L,
    crowd: Crowd,
    enough: impl Fn(u64) -> bool + Sync,
    watcher: impl Fn() -> W + Sync,
) -> Outcome {
    let Crowd { count, rounds, spin_threshold, handoff } = crowd;
    let pv = Threads::new(count);
    let waiters = WaitTable::new();
    let section = Section::new();
    let start = Barrier::new(count);
    let violations = AtomicU64::new(0);
    let slow = AtomicU64::new(0);
    let (halts, kicks) = (AtomicU64::new(0), AtomicU64::new(0));
    let (taken, finished) = (AtomicU64::new(0), AtomicUsize::new(0));
    let mut abandoned = false;
    thread::scope(|scope| {
        for id in 0..count {
            let (pv, waiters, section, start) = (&pv, &waiters, &section, &start);
            let (violations, slow, halts, kicks) = (&violations, &slow, &halts, &kicks);
            let (enough, all_taken, finished) = (&enough, &taken, &finished);
            let watcher = &watcher;
            scope.spawn(move || {
                pv.handles[id].set(thread::current()).expect("set once");
                let cpu = Cpu { id, spin_threshold, pv, waiters, watch: watcher(), handoff };
                start.wait();
                for round in 0..rounds {
                    let taken = lock.lock(&cpu);
                    if round % 256 == 0 {
                        // Makes sure that, on any machine, a waiter meets a holder that is off its
                        // CPU.
                        thread::yield_now();
                    }
                    if section.run(id, 20).is_err() {
                        violations.fetch_add(1, Ordering::Relaxed);
                    }
                    let released = lock.unlock(&cpu);
                    all_taken.fetch_add(1, Ordering::Relaxed);
                    slow.fetch_add(taken.slow.into(), Ordering::Relaxed);
                    halts.fetch_add(taken.halts.into(), Ordering::Relaxed);
                    kicks.fetch_add(released.kicks.into(), Ordering::Relaxed);
                    if enough(violations.load(Ordering::Relaxed)) {
                        break;
                    }
                }
                settle(&cpu);
                finished.fetch_add(1, Ordering::SeqCst);
            });
        }
        let mut progress = Progress::new();
        while finished.load(Ordering::SeqCst) < count {
            abandoned |= progress.has_ended(taken.load(Ordering::Relaxed));
            if abandoned {
                // A lost wakeup: rescue the threads, then fail.
                pv.handles.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
            }
            thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(!abandoned, "a waiter slept forever");
    assert_eq!(pv.halts.into_inner(), halts.load(Ordering::Relaxed), "halts reported as made");
    assert_eq!(pv.kicks.into_inner(), kicks.load(Ordering::Relaxed), "kicks reported as made");
    Outcome {
        violations: violations.into_inner(),
        slow: slow.into_inner(),
        halts: halts.into_inner(),
        kicks: kicks.into_inner(),
    }
}

fn all(_violations: u64) -> bool {
    false
}

/// As many rounds as there are in [`SPINNING`].
fn for_a_while() -> impl Fn(u64) -> bool + Sync {
    let began = Instant::now();
    move |_| began.elapsed() > SPINNING
}

#[test]
fn native_excludes() {
    let outcome = contend(&NativeTicketLock::new(), 2, 50_000, 0, for_a_while());
    assert_eq!(outcome.violations, 0);
    assert_eq!((outcome.halts, outcome.kicks), (0, 0));
}

#[test]
fn pv_excludes_with_every_wait_a_halt() {
    let outcome = contend(&PvTicketLock::new(), 8, 10_000, 0, all);
    assert_eq!(outcome.violations, 0);
    assert!(outcome.slow > 0 && outcome.halts > 0 && outcome.kicks > 0);
}

#[test]
fn pv_excludes_with_short_spins_over_the_wrap_of_the_tickets() {
    // 16 * 5000 acquisitions pass ticket 65534 twice.
    let outcome = contend(&PvTicketLock::new(), 16, 5_000, 20, all);
    assert_eq!(outcome.violations, 0);
    assert!(outcome.halts > 0);
}

#[test]
fn pv_alone_is_never_slow() {
    let outcome = contend(&PvTicketLock::new(), 1, 70_000, 10, all);
    assert_eq!((outcome.violations, outcome.slow, outcome.halts), (0, 0, 0));
}

#[test]
fn watchers_are_told_steps_that_can_follow_each_other() {
    let grammar = || Grammar(Cell::new(At::Nothing));
    let handoff = Handoff::default();
    for spin_threshold in [0, 20] {
        let lock = PvTicketLock::new();
        let crowd = Crowd { count: 8, rounds: 5_000, spin_threshold, handoff };
        let outcome = contend_watched(&lock, crowd, all, grammar);
        assert_eq!(outcome.violations, 0);
        assert!(outcome.halts > 0);
    }
    let crowd = Crowd { count: 2, rounds: 50_000, spin_threshold: 0, handoff };
    let outcome = contend_watched(&NativeTicketLock::new(), crowd, for_a_while(), grammar);
    assert_eq!(outcome.violations, 0);
}

#[test]
fn watchers_of_locks_without_tickets_are_too() {
    fn check<L: RawLock + Sync>(lock: &L, spin_threshold: u32) {
        let (rounds, handoff) = (3_000, Handoff::default());
        let crowd = Crowd { count: 4, rounds, spin_threshold, handoff };
        let grammar = || Grammar(Cell::new(At::Nothing));
        let outcome = contend_watched(lock, crowd, for_a_while(), grammar);
        assert_eq!(outcome.violations, 0);
    }
    for spin_threshold in [0, 20] {
        check(&SmallPvTicketLock::new(), spin_threshold);
        check(&PvPreemptableTicketLock::new(), spin_threshold);
        check(&PvQueuedLock::new(), spin_threshold);
    }
    check(&TestAndSetLock::new(), 0);
}

/// Every handoff option by itself.
fn handoffs() -> Vec<Handoff> {
    let plain = Handoff::default();
    vec![
        Handoff { far: 2, ..plain },
        Handoff { predecessor: true, ..plain },
        Handoff { adapt: true, ..plain },
        Handoff { claim: true, ..plain },
        Handoff { ahead: true, ..plain },
        Handoff { fuse: true, ..plain },
        Handoff { queue: 1, ..plain },
        Handoff { queue: 2, ..plain },
    ]
}

/// Returns the halts: sometimes none, if the threads happened to run one after the other.
fn handed_over(handoff: Handoff, spin_threshold: u32) -> u64 {
    let lock = PvTicketLock::new();
    let crowd = Crowd { count: 6, rounds: 3_000, spin_threshold, handoff };
    let outcome = contend_watched(&lock, crowd, all, || Unwatched);
    assert_eq!(outcome.violations, 0, "{handoff:?}");
    outcome.halts
}

#[test]
fn every_cheaper_handoff_excludes_and_loses_no_wakeup() {
    let count = |handoff| handed_over(handoff, 0) + handed_over(handoff, 20);
    let halts: u64 = handoffs().into_iter().map(count).sum();
    assert!(halts > 0);
}

#[test]
fn all_of_them_together_do() {
    let handoff = Handoff {
        far: 2,
        predecessor: true,
        adapt: true,
        claim: true,
        ahead: true,
        fuse: true,
        queue: 2,
        ..Handoff::default()
    };
    let outside = handed_over(handoff, 0) + handed_over(handoff, 20);
    let queued = handed_over(Handoff { queue: 0, ..handoff }, 20);
    assert!(outside + queued > 0);
}

/// Returns the halts.
fn restricted<L: RawLock + Sync>(lock: L, restrict: u16) -> u64 {
    let handoff = Handoff { restrict, ..Handoff::default() };
    let crowd = Crowd { count: 6, rounds: 2_000, spin_threshold: 20, handoff };
    let lock = Restricted::around(lock);
    let outcome = contend_watched(&lock, crowd, for_a_while(), || Unwatched);
    assert_eq!(outcome.violations, 0, "restrict:{restrict}");
    assert!(!lock.is_contended(), "a CPU is left outside");
    outcome.halts
}

#[test]
fn restricted_locks_exclude_and_lose_no_wakeup() {
    let halts: u64 = [1, 2, 5, Handoff::ADAPTIVE]
        .into_iter()
        .map(|restrict| {
            restricted(NativeTicketLock::new(), restrict)
                + restricted(McsLock::new(), restrict)
                + restricted(PvQueuedLock::new(), restrict)
        })
        .sum();
    assert!(halts > 0);
}

#[test]
fn the_check_of_exclusion_can_fail() {
    let outcome = contend(&Open, 4, 100_000_000, 0, |violations| violations > 0);
    assert!(outcome.violations > 0);
}
