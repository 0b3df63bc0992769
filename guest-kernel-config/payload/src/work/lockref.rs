//! A lockref: get a reference, then put it.

use locks::lockref::{Counted, Lockref};
use locks::{Cpu, Family, MAX_CPUS, Pv};

use super::{CachePadded, Done, OperationParams, Work};
use crate::telemetry::WorkloadWatch;

/// Number of references that exist from the beginning.
pub(super) const FIRST: i32 = 1;

pub(super) struct LockrefWork<R>(pub(super) CachePadded<R>);

impl<const TRIES: u32> Work for LockrefWork<Lockref<TRIES>> {
    const FAMILY: Family = Family::Lockref;

    #[inline]
    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Done {
        let lockref = &self.0.0;
        let since = load.waits();
        let got: Counted = lockref.get(cpu);
        let count = lockref.count();
        let put = lockref.put(cpu);
        let ticks = load.waited(since);
        Done {
            slow: got.locked || put.locked,
            halts: got.halts + put.halts,
            kicks: got.kicks + put.kicks,
            retries: got.retries + put.retries,
            // The first reference and this vCPU's exist, and at most one per
            // vCPU.
            is_violated: count <= FIRST || count > FIRST + MAX_CPUS as i32,
            ticks,
            ..Done::default()
        }
    }

    fn look(&self) -> bool {
        self.0.0.count() > FIRST
    }
}
