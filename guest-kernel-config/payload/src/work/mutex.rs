//! A mutex: acquire, work, release.

use locks::mutex::RawMutex;
use locks::{Cpu, Family, Pv, Section as Increments};

use super::{CachePadded, Done, OperationParams, Work};
use crate::telemetry::WorkloadWatch;

/// A critical section under a mutex.
pub(super) struct MutexWork<M> {
    mutex: CachePadded<M>,
    section: Increments,
}

impl<M> MutexWork<M> {
    pub(super) const fn under(mutex: M) -> Self {
        Self { mutex: CachePadded(mutex), section: Increments::new() }
    }
}

impl<M: RawMutex> Work for MutexWork<M> {
    const FAMILY: Family = Family::Mutex;

    #[inline]
    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Done {
        let mutex = &self.mutex.0;
        let since = load.waits();
        let taken = mutex.lock(cpu);
        let ticks = load.waited(since);
        let alone = self.section.run(cpu.id, load.critical);
        let released = mutex.unlock(cpu);
        Done {
            slow: taken.slow,
            halts: taken.halts,
            kicks: released.kicks,
            rmw: taken.rmw + released.rmw,
            beside: taken.beside,
            spins: taken.spins,
            is_violated: alone.is_err(),
            ticks,
            ..Done::default()
        }
    }

    fn look(&self) -> bool {
        self.mutex.0.is_locked()
    }
}
