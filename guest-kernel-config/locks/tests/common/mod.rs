//! A lock under test. CPUs are threads: a halt is `park`, a kick `unpark`, whose token is the sticky bit.

pub mod grammar;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use locks::{Acquisition, Cpu, Handoff, Pv, RawLock, Section, WaitTable, Watch};

/// Timeout of a test. A busy host delays each handoff by milliseconds, so that a test may take minutes.
const TIMEOUT: Duration = Duration::from_secs(1_800);

/// The threads, once they have started, and whether their waiters may halt.
pub struct Threads<const PV: bool> {
    handles: Vec<OnceLock<Thread>>,
    began: Instant,
    has_failed: AtomicBool,
}

impl<const PV: bool> Threads<PV> {
    /// Yields to the other threads until `condition`: there are more threads than processors.
    pub fn wait_until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            self.check();
            thread::yield_now();
        }
    }

    /// Fails if the test has timed out, or another CPU has failed.
    fn check(&self) {
        assert!(!self.has_failed.load(Ordering::SeqCst), "another CPU failed");
        assert!(self.began.elapsed() < TIMEOUT, "it waits forever");
    }
}

impl<const PV: bool> Pv for Threads<PV> {
    const ENABLED: bool = PV;

    fn spin_hint(&self) {
        self.check();
        thread::yield_now();
    }

    fn lock_spinning(&self, _ticket: u16) {
        assert!(PV, "PV is off");
        thread::park_timeout(TIMEOUT);
        self.check();
    }

    fn unlock_kick(&self, cpu: usize) {
        assert!(PV, "PV is off");
        self.handles[cpu].get().expect("a kicked CPU has started").unpark();
    }
}

/// Wakes the other threads if its thread panics.
struct Failing<'a, const PV: bool>(&'a Threads<PV>);

impl<const PV: bool> Drop for Failing<'_, PV> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.has_failed.store(true, Ordering::SeqCst);
            self.0.handles.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
        }
    }
}

/// A lock, the data that it protects, and its CPUs.
pub struct Bench<L, const PV: bool> {
    pub lock: L,
    pub section: Section,
    pub waiters: WaitTable,
    pub pv: Threads<PV>,
    pub violations: AtomicU64,
}

impl<L: RawLock + Default + Sync, const PV: bool> Bench<L, PV> {
    pub fn new(count: usize) -> Self {
        let handles = (0..count).map(|_| OnceLock::new()).collect();
        Self {
            lock: L::default(),
            section: Section::new(),
            waiters: WaitTable::new(),
            pv: Threads { handles, began: Instant::now(), has_failed: AtomicBool::new(false) },
            violations: AtomicU64::new(0),
        }
    }

    pub fn cpu<W: Watch>(
        &self,
        id: usize,
        spin_threshold: u32,
        watch: W,
    ) -> Cpu<'_, Threads<PV>, W> {
        let (pv, waiters, handoff) = (&self.pv, &self.waiters, Handoff::default());
        Cpu { id, spin_threshold, pv, waiters, watch, handoff }
    }

    /// Runs the critical section with the lock `taken`, and releases the lock.
    pub fn work<W: Watch>(&self, cpu: &Cpu<'_, Threads<PV>, W>, taken: &Acquisition) {
        assert_eq!(taken.ticket.is_some(), L::TICKETS != 0);
        let in_turn = self.section.follows::<L>(taken).is_ok();
        let alone = self.section.run(cpu.id, 20).is_ok();
        if !in_turn || !alone {
            self.violations.fetch_add(1, Ordering::Relaxed);
        }
        self.lock.unlock(cpu);
    }

    /// Runs `part` as each CPU, one thread per CPU.
    pub fn run(&self, part: impl Fn(usize) + Sync) {
        thread::scope(|scope| {
            for (id, handle) in self.pv.handles.iter().enumerate() {
                let part = &part;
                scope.spawn(move || {
                    let _failing = Failing(&self.pv);
                    handle.get_or_init(thread::current);
                    part(id);
                });
            }
        });
    }
}
