//! A spinlock: acquire, work, release.

use hypercalls::payload::MOST_LOCKS;
use locks::{Cpu, Family, Pv, RawLock, Section as Increments};

use super::{CachePadded, Done, OperationParams, Work};
use crate::telemetry::WorkloadWatch;

/// A spinlock and its critical section.
pub(super) struct Guarded<L> {
    lock: CachePadded<L>,
    section: Increments,
}

impl<L> Guarded<L> {
    pub(super) const fn under(lock: L) -> Self {
        Self { lock: CachePadded(lock), section: Increments::new() }
    }
}

/// A critical section under one of several spinlocks.
pub(super) struct SpinlockWork<L>(pub(super) [Guarded<L>; MOST_LOCKS]);

impl<L: RawLock> Work for SpinlockWork<L> {
    const FAMILY: Family = Family::Spinlock;

    #[inline]
    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Done {
        let Guarded { lock: CachePadded(lock), section } = &self.0[load.lock()];
        let since = load.waits();
        let taken = lock.lock(cpu);
        let ticks = load.waited(since);
        cpu.watch.critical();
        let in_turn = section.follows::<L>(&taken);
        let alone = section.run(cpu.id, load.critical);
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
        self.0[0].lock.0.is_contended()
    }
}
