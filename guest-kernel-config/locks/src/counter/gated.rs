//! Gates that separate sums from folds, from the review of "percpu_counter: scalability works"
//! (Linux 2011).

use crate::counter::locals::Locals;
use crate::counter::{Addition, Counter};
use crate::sync::{AtomicI64, AtomicU32, Ordering};
use crate::{Cpu, Pv, PvTicketLock, RawLock, Watch};

/// Folds pass a gate concurrently; a sum closes it and waits until all folds have passed.
///
/// Suited to rare sums: folds wait neither for a lock nor for each other, only for a sum. While a
/// sum's vCPU is preempted, folds spin until it runs again; a sum spins while folds pass. A sum
/// is as accurate as a [`LockedCounter`](crate::counter::LockedCounter)'s: no add is counted
/// twice and none missed. With `n` CPUs and batch `b` it differs from the total at any moment of the
/// reading by at most `2 * n * (b - 1)`, and by half of this if no amount is ever negative.
#[derive(Debug)]
pub struct GatedCounter {
    /// Serializes sums.
    lock: PvTicketLock,
    gates: Gates,
    count: AtomicI64,
    locals: Locals,
}

/// Each side announces itself and then checks for the other. Read-modify-writes and loads are in
/// one total order: of a concurrent fold and sum, at least one sees the other.
#[derive(Debug)]
struct Gates {
    folds: AtomicU32,
    sums: AtomicU32,
}

impl Gates {
    /// Enters a fold; calls `pause` while a sum is in progress.
    fn enter(&self, mut pause: impl FnMut()) {
        loop {
            self.folds.fetch_add(1, Ordering::SeqCst);
            if self.sums.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.leave();
            while self.sums.load(Ordering::SeqCst) != 0 {
                pause();
            }
        }
    }

    /// Ends a fold. Release: a sum that sees the fold end sees its effects.
    fn leave(&self) {
        self.folds.fetch_sub(1, Ordering::Release);
    }

    /// Closes the gate for a sum, and waits until all folds have passed.
    fn close(&self, mut pause: impl FnMut()) {
        self.sums.fetch_add(1, Ordering::SeqCst);
        while self.folds.load(Ordering::SeqCst) != 0 {
            pause();
        }
    }

    /// Reopens the gate. Release: a fold that enters does not change a part before the sum has read it.
    fn open(&self) {
        self.sums.fetch_sub(1, Ordering::Release);
    }
}

impl GatedCounter {
    /// Creates a counter at zero for CPUs below `cpus`, with batches of `batch`.
    pub const fn new(cpus: usize, batch: i32) -> Self {
        let gates = Gates { folds: AtomicU32::new(0), sums: AtomicU32::new(0) };
        let (lock, count) = (PvTicketLock::new(), AtomicI64::new(0));
        Self { lock, gates, count, locals: Locals::new(cpus, batch) }
    }
}

impl Counter for GatedCounter {
    const EXACT: bool = true;

    #[inline]
    fn add<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, amount: i64) -> Addition {
        let Some(total) = self.locals.add_local(cpu.id, amount) else { return Addition::default() };
        let mut added = Addition { shared: true, ..Addition::default() };
        self.gates.enter(|| {
            added.waits += cpu.pv.spin(u32::MAX);
        });
        // The gates order these.
        self.count.fetch_add(total, Ordering::Relaxed);
        self.locals.reset(cpu.id);
        self.gates.leave();
        added
    }

    fn sum<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> i64 {
        self.lock.lock(cpu);
        self.gates.close(|| cpu.pv.spin_hint());
        let sum = self.count.load(Ordering::Relaxed).wrapping_add(self.locals.sum());
        self.gates.open();
        self.lock.unlock(cpu);
        sum
    }

    #[inline]
    fn read(&self) -> i64 {
        // A single atomic value; nothing else is inferred from it.
        self.count.load(Ordering::Relaxed)
    }

    fn set<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, amount: i64) {
        self.locals.clear();
        self.count.store(amount, Ordering::Relaxed);
    }
}
