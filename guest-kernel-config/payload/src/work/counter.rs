//! A per-CPU counter: every vCPU adds, and sums at intervals.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use locks::counter::{Counter, default_batch};
use locks::{Cpu, Family, MAX_CPUS, Pv};

use super::{OperationParams, Outcome, Work};
use crate::telemetry::WorkloadWatch;

/// Number of per-CPU parts of each counter.
pub(super) const CPUS: usize = MAX_CPUS;

/// Linux's batch for up to 16 CPUs, as measured for the 2011 patch.
pub(super) const BATCH: i32 = default_batch(16);

/// Adds to a counter.
pub(super) struct CounterWork<C>(pub(super) C);

impl<C: Counter> Work for CounterWork<C> {
    const FAMILY: Family = Family::Counter;

    #[inline]
    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Outcome {
        let since = load.begin_wait();
        let added = self.0.add(cpu, load.critical.into());
        let ticks = load.end_wait(since);
        let adds = load.vcpu.increment_release(|slot| &slot.adds);
        let is_due = load.sum_every != 0 && adds.is_multiple_of(load.sum_every.into());
        Outcome {
            slow: added.shared,
            halts: added.halts,
            kicks: added.kicks,
            spins: added.waits,
            is_violated: is_due && self.sum(cpu, load).is_err(),
            ticks,
            ..Outcome::default()
        }
    }

    fn read_word(&self) -> bool {
        self.0.read_positive() == 0
    }
}

/// The error of a sum exceeds the counter's bound.
struct BoundExceeded;

impl<C: Counter> CounterWork<C> {
    /// Sums, and compares the result with the adds that the vCPUs report.
    #[cold]
    fn sum<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Result<(), BoundExceeded> {
        let slots = load.vcpu.slots();
        let adds = |order| slots.iter().map(|slot| slot.adds.load(order)).sum::<u64>() as i64;
        let amount = i64::from(load.critical);
        // Acquire orders the sum after these loads; the loads for `max` come after the sum.
        let min = adds(Acquire) * amount;
        let sum = self.0.sum(cpu);
        // Each vCPU may be in the middle of another add.
        let max = (adds(Relaxed) + slots.len() as i64) * amount;
        let error = (min - sum).max(sum - max).max(0) as u64;
        load.vcpu.add(|slot| &slot.sums, 1);
        load.vcpu.raise_to(|slot| &slot.deviation, error);
        let slack = if C::EXACT { 0 } else { slots.len() as u64 * (BATCH as u64 - 1) };
        if error > slack || sum < min { Err(BoundExceeded) } else { Ok(()) }
    }
}
