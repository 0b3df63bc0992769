//! A spinlock: acquire, work, release.

use hypercalls::payload::MAX_LOCKS;
use locks::{Cpu, Family, Pv, RawLock, Section as Increments};

use super::{CachePadded, OperationParams, Outcome, Work};
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
pub(super) struct SpinlockWork<L>(pub(super) [Guarded<L>; MAX_LOCKS]);

impl<L: RawLock> Work for SpinlockWork<L> {
    const FAMILY: Family = Family::Spinlock;

    #[inline]
    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Outcome {
        let Guarded { lock: CachePadded(lock), section } = &self.0[load.lock()];
        let since = load.begin_wait();
        let taken = lock.lock(cpu);
        let ticks = load.end_wait(since);
        cpu.watch.critical();
        let in_turn = section.follows::<L>(&taken);
        let exclusion = section.run(cpu.id, load.critical);
        let released = lock.unlock(cpu);
        Outcome {
            slow: taken.slow,
            halts: taken.halts,
            kicks: released.kicks,
            is_violated: exclusion.is_err(),
            is_disorderly: in_turn.is_err(),
            ticks,
            ..Outcome::default()
        }
    }

    fn read_word(&self) -> bool {
        self.0[0].lock.0.is_contended()
    }
}
