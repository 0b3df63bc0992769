//! Linux's counter before "percpu_counter: scalability works" (2011): a lock around every fold and
//! every sum.

use crate::counter::locals::Locals;
use crate::counter::{Addition, Counter};
use crate::sync::{AtomicI64, Ordering};
use crate::{Cpu, Pv, PvTicketLock, RawLock, Watch};

/// A lock around folds and sums: the code that the patch of 2011 starts from.
///
/// Suited to batches that rarely fill; with amounts larger than the batch every add takes the lock. A sum
/// counts no add twice and misses none that was completed before the call. While it reads, nothing is folded
/// and each part stays within the batch: with `n` CPUs and batch `b` it differs from the total at any
/// moment of the reading by at most `2 * n * (b - 1)`, and by half of this if no amount is ever negative.
#[derive(Debug)]
pub struct LockedCounter {
    lock: PvTicketLock,
    /// Written under the lock.
    count: AtomicI64,
    locals: Locals,
}

impl LockedCounter {
    /// Creates a counter at zero for CPUs below `cpus`, with batches of `batch`.
    pub const fn new(cpus: usize, batch: i32) -> Self {
        let (lock, count) = (PvTicketLock::new(), AtomicI64::new(0));
        Self { lock, count, locals: Locals::new(cpus, batch) }
    }

    #[cold]
    #[inline(never)]
    fn fold<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, total: i64) -> Addition {
        let taken = self.lock.lock(cpu);
        // The lock orders these.
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add(total), Ordering::Relaxed);
        self.locals.reset(cpu.id);
        let released = self.lock.unlock(cpu);
        let (waits, halts, kicks) = (u32::from(taken.slow), taken.halts, released.kicks);
        Addition { shared: true, waits, halts, kicks }
    }
}

impl Counter for LockedCounter {
    const EXACT: bool = true;

    #[inline]
    fn add<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, amount: i64) -> Addition {
        match self.locals.add_local(cpu.id, amount) {
            None => Addition::default(),
            Some(total) => self.fold(cpu, total),
        }
    }

    fn sum<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> i64 {
        self.lock.lock(cpu);
        let sum = self.count.load(Ordering::Relaxed).wrapping_add(self.locals.sum());
        self.lock.unlock(cpu);
        sum
    }

    #[inline]
    fn read(&self) -> i64 {
        // A single atomic value; nothing else is inferred from it.
        self.count.load(Ordering::Relaxed)
    }

    fn set<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, amount: i64) {
        self.lock.lock(cpu);
        self.locals.clear();
        self.count.store(amount, Ordering::Relaxed);
        self.lock.unlock(cpu);
    }
}
