//! A mutex: acquire, work, release.

use locks::mutex::RawMutex;
use locks::{Cpu, Family, Pv, Section as Increments};

use super::{CachePadded, OperationParams, Outcome, Work};
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
    ) -> Outcome {
        let mutex = &self.mutex.0;
        let since = load.begin_wait();
        let taken = mutex.lock(cpu);
        let ticks = load.end_wait(since);
        let exclusion = self.section.run(cpu.id, load.critical);
        let released = mutex.unlock(cpu);
        Outcome {
            slow: taken.slow,
            halts: taken.halts,
            kicks: released.kicks,
            rmw: taken.rmw + released.rmw,
            spinner_rmw: taken.spinner_rmw,
            spins: taken.spins,
            is_violated: exclusion.is_err(),
            ticks,
            ..Outcome::default()
        }
    }

    fn read_word(&self) -> bool {
        self.mutex.0.is_locked()
    }
}
