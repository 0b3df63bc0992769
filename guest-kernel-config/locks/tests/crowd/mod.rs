//! Threads as CPUs: a halt is `park`, a kick is `unpark` (whose token is the sticky bit).

#[path = "../progress/mod.rs"]
mod progress;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use locks::{Cpu, Handoff, Pv, Unwatched, WaitTable};
use progress::Progress;

/// The machine.
#[allow(dead_code)]
pub struct Crowd {
    handles: Vec<OnceLock<Thread>>,
    waiters: WaitTable,
    /// Looks before a halt (the spin threshold).
    pub spin_threshold: u32,
    /// Handoff options of spinlocks.
    pub handoff: Handoff,
    /// Halts that the machine has seen.
    pub halts: AtomicU64,
    pub kicks: AtomicU64,
    /// One bit per CPU that seems to be off.
    pub off: AtomicU64,
}

impl Pv for Crowd {
    fn spin_hint(&self) {
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

    fn is_off(&self, cpu: usize) -> bool {
        self.off.load(Ordering::Relaxed) & (1 << cpu) != 0
    }
}

impl Crowd {
    pub fn new(count: usize, spin_threshold: u32) -> Self {
        Self {
            handles: (0..count).map(|_| OnceLock::new()).collect(),
            waiters: WaitTable::new(),
            spin_threshold,
            handoff: Handoff::default(),
            halts: AtomicU64::new(0),
            kicks: AtomicU64::new(0),
            off: AtomicU64::new(0),
        }
    }

    pub fn cpu(&self, id: usize) -> Cpu<'_, Self> {
        let (spin_threshold, handoff) = (self.spin_threshold, self.handoff);
        Cpu { id, spin_threshold, pv: self, waiters: &self.waiters, watch: Unwatched, handoff }
    }

    /// All CPUs do `work` in parallel. Fails, and ends, if one sleeps forever.
    pub fn run(&self, work: impl Fn(&Cpu<'_, Self>) + Sync) {
        let start = Barrier::new(self.handles.len());
        let finished = AtomicUsize::new(0);
        let mut abandoned = false;
        thread::scope(|scope| {
            for (id, handle) in self.handles.iter().enumerate() {
                let (start, finished, work) = (&start, &finished, &work);
                scope.spawn(move || {
                    let _ = handle.set(thread::current());
                    let _finishing = Finishing(finished);
                    start.wait();
                    work(&self.cpu(id));
                });
            }
            let mut progress = Progress::new();
            while finished.load(Ordering::SeqCst) < self.handles.len() {
                let kicks = self.kicks.load(Ordering::Relaxed);
                abandoned |= progress.has_ended(kicks + finished.load(Ordering::SeqCst) as u64);
                if abandoned {
                    // A lost wakeup: rescue the threads, then fail.
                    self.handles.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        assert!(!abandoned, "a CPU slept forever");
    }
}

/// Counts a thread that ends, even by a panic.
struct Finishing<'a>(&'a AtomicUsize);

impl Drop for Finishing<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
