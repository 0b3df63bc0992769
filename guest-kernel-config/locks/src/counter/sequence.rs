//! "percpu_counter: scalability works" (Linux 2011), V3: no lock, but a sequence of folds, and a
//! slow count during sums.

use crate::counter::locals::Locals;
use crate::counter::{Addition, Counter};
use crate::sync::{AtomicI64, AtomicU32, Ordering};
use crate::{Cpu, Pv, Watch};

/// During a sum, adds go to a shared slow count; a sum starts over if a fold happened during it.
///
/// Suited to rare sums that need not be exact: no add ever waits, and a sum ends after at most one
/// round more than there are CPUs in the middle of an add. It has the hole that the patch's
/// review points out: a CPU that has folded its part and not yet reset it is counted twice by a sum
/// that begins and ends in between. With `n` CPUs and batch `b` the error is up to `n * (b - 1)`, as
/// much as the error of [`Counter::read`], and the sum may exceed the total ever added. Otherwise,
/// since one add per CPU may have missed the sum, a sum is off by at most `2 * n * (b - 1)` at the
/// moment of its last read of the slow count. It misses no add that was completed before the call.
#[derive(Debug)]
pub struct SequenceCounter {
    /// Sums in progress. Read by every add, rarely written: not in the cache line of the counts.
    sums: AtomicU32,
    shared: Shared,
    locals: Locals,
}

/// The state that folds write.
#[derive(Debug)]
#[repr(align(64))]
struct Shared {
    count: AtomicI64,
    slow: AtomicI64,
    /// Folds so far. Not atomic in the patch: there, two folds may count as one.
    folds: AtomicU32,
}

impl SequenceCounter {
    /// Creates a counter at zero for CPUs below `cpus`, with batches of `batch`.
    pub const fn new(cpus: usize, batch: i32) -> Self {
        let (count, slow) = (AtomicI64::new(0), AtomicI64::new(0));
        let shared = Shared { count, slow, folds: AtomicU32::new(0) };
        Self { sums: AtomicU32::new(0), shared, locals: Locals::new(cpus, batch) }
    }

    /// The first half of a fold. The sequence advances before the part is reset: a sum that missed
    /// the count and sees the part reset also sees that it must start over.
    fn publish(&self, total: i64) {
        self.shared.count.fetch_add(total, Ordering::Release);
        self.shared.folds.fetch_add(1, Ordering::Release);
    }

    fn sum_once(&self) -> Option<i64> {
        // Acquire loads, in this order: no load is reordered before the load above it.
        let folds = self.shared.folds.load(Ordering::Acquire);
        let count = self.shared.count.load(Ordering::Acquire);
        let parts = self.locals.sum();
        let slow = self.shared.slow.load(Ordering::Acquire);
        let is_alone = self.shared.folds.load(Ordering::Relaxed) == folds;
        is_alone.then(|| count.wrapping_add(parts).wrapping_add(slow))
    }
}

impl Counter for SequenceCounter {
    const EXACT: bool = false;

    #[inline]
    fn add<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, amount: i64) -> Addition {
        let shared = Addition { shared: true, ..Addition::default() };
        // Relaxed: missing a sum that has just begun costs that sum one more round.
        if self.sums.load(Ordering::Relaxed) != 0 {
            self.shared.slow.fetch_add(amount, Ordering::Release);
            return shared;
        }
        let Some(total) = self.locals.add_local(cpu.id, amount) else { return Addition::default() };
        self.publish(total);
        // The hole: a sum between `publish` and this reset counts the part twice.
        self.locals.reset(cpu.id);
        shared
    }

    fn sum<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> i64 {
        self.sums.fetch_add(1, Ordering::SeqCst);
        let sum = loop {
            if let Some(sum) = self.sum_once() {
                break sum;
            }
            cpu.pv.spin_hint();
        };
        self.sums.fetch_sub(1, Ordering::Release);
        sum
    }

    #[inline]
    fn read(&self) -> i64 {
        let count = self.shared.count.load(Ordering::Relaxed);
        count.wrapping_add(self.shared.slow.load(Ordering::Relaxed))
    }

    fn set<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, amount: i64) {
        self.locals.clear();
        self.shared.count.store(amount, Ordering::Release);
        self.shared.slow.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::Stage;

    #[test]
    fn adds_go_to_the_slow_count_during_a_sum() {
        let stage = Stage::without_waits(());
        let cpu = stage.cpu(0);
        let counter = SequenceCounter::new(2, 10);
        assert!(!counter.add(&cpu, 3).shared);
        counter.sums.store(1, Ordering::Relaxed);
        assert!(counter.add(&cpu, 4).shared);
        counter.sums.store(0, Ordering::Relaxed);
        assert_eq!((counter.read(), counter.locals.sum(), counter.sum(&cpu)), (4, 3, 7));
    }
}
