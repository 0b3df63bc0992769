//! The per-CPU parts of a counter.

use crate::sync::{AtomicI32, MAX_CPUS, Ordering};

/// One CPU's part, in its own cache line. Written only by its CPU and `clear`.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Local(AtomicI32);

impl Local {
    const fn new() -> Self {
        Self(AtomicI32::new(0))
    }
}

/// The parts of all CPUs, and their limit.
#[derive(Debug)]
pub(super) struct Locals {
    batch: i32,
    cpus: usize,
    parts: [Local; MAX_CPUS],
}

impl Locals {
    /// Creates parts of zero for CPUs below `cpus`, each less than `batch` in magnitude.
    pub(super) const fn new(cpus: usize, batch: i32) -> Self {
        assert!(cpus <= MAX_CPUS && batch > 0, "at most MAX_CPUS CPUs, and a batch of at least 1");
        Self { batch, cpus, parts: [const { Local::new() }; MAX_CPUS] }
    }

    /// Adds `amount` to `cpu`'s part. If the part would reach the batch, leaves it unchanged and
    /// returns the total; [`Locals::reset`] must follow.
    #[inline]
    pub(super) fn add_local(&self, cpu: usize, amount: i64) -> Option<i64> {
        let part = &self.parts[..self.cpus][cpu].0;
        let total = i64::from(part.load(Ordering::Relaxed)).wrapping_add(amount);
        match i32::try_from(total) {
            Ok(part_value) if part_value > -self.batch && part_value < self.batch => {
                // Release, like every write of a part: its reader sees all folds of this CPU so
                // far.
                part.store(part_value, Ordering::Release);
                None
            }
            _ => Some(total),
        }
    }

    /// Resets `cpu`'s part after its fold.
    #[inline]
    pub(super) fn reset(&self, cpu: usize) {
        self.parts[cpu].0.store(0, Ordering::Release);
    }

    /// The sum of all parts, read one after the other.
    pub(super) fn sum(&self) -> i64 {
        // Acquire: see `add_local`.
        self.parts[..self.cpus].iter().map(|part| i64::from(part.0.load(Ordering::Acquire))).sum()
    }

    pub(super) fn clear(&self) {
        (0..self.cpus).for_each(|cpu| self.reset(cpu));
    }
}
