//! A lockref: get a reference, then put it.

use locks::lockref::{CountChange, Lockref};
use locks::{Cpu, Family, MAX_CPUS, Pv};

use super::{CachePadded, OperationParams, Outcome, Work};
use crate::telemetry::WorkloadWatch;

/// Number of references that exist from the beginning.
pub(super) const INITIAL_COUNT: i32 = 1;

pub(super) struct LockrefWork<R>(pub(super) CachePadded<R>);

impl<const TRIES: u32> Work for LockrefWork<Lockref<TRIES>> {
    const FAMILY: Family = Family::Lockref;

    #[inline]
    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Outcome {
        let lockref = &self.0.0;
        let since = load.begin_wait();
        let got: CountChange = lockref.get(cpu);
        let count = lockref.count();
        let put = lockref.put(cpu);
        let ticks = load.end_wait(since);
        Outcome {
            slow: got.locked || put.locked,
            halts: got.halts + put.halts,
            kicks: got.kicks + put.kicks,
            retries: got.retries + put.retries,
            // The first reference and this vCPU's exist, and at most one per vCPU.
            is_violated: count <= INITIAL_COUNT || count > INITIAL_COUNT + MAX_CPUS as i32,
            ticks,
            ..Outcome::default()
        }
    }

    fn read_word(&self) -> bool {
        self.0.0.count() > INITIAL_COUNT
    }
}
