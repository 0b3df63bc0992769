//! A spinlock: acquire, work, release.

use locks::{Cpu, Family, Pv, RawLock, Section as Increments};

use super::{CachePadded, Done, OperationParams, Work};
use crate::telemetry::WorkloadWatch;

/// A critical section under a spinlock.
pub(super) struct SpinlockWork<L> {
    lock: CachePadded<L>,
    section: Increments,
}

impl<L> SpinlockWork<L> {
    pub(super) const fn under(lock: L) -> Self {
        Self { lock: CachePadded(lock), section: Increments::new() }
    }
}

impl<L: RawLock> Work for SpinlockWork<L> {
    const FAMILY: Family = Family::Spinlock;

    #[inline]
    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Done {
        let lock = &self.lock.0;
        let since = load.waits();
        let taken = lock.lock(cpu);
        let ticks = load.waited(since);
        cpu.watch.critical();
        let in_turn = self.section.follows::<L>(&taken);
        let alone = self.section.run(cpu.id, load.critical);
        let released = lock.unlock(cpu);
        Done {
            slow: taken.slow,
            halts: taken.halts,
            kicks: released.kicks,
            is_violated: alone.is_err(),
            is_disorderly: in_turn.is_err(),
            ticks,
            ..Done::default()
        }
    }

    fn look(&self) -> bool {
        self.lock.0.is_contended()
    }
}
