//! Counters that every CPU adds to in a place of its own, and folds into a shared one when that
//! has come to a batch.
//!
//! Three systems of seed 002 differ in what keeps folding and summing apart: a lock
//! ([`LockedCounter`], the mainline of the time), a sequence and a slow count ([`SequenceCounter`],
//! V3 of the patch), and gates ([`GatedCounter`], the reply).
//!
//! With `n` CPUs and batch `b`, for all three: [`Counter::read`] is off by `n * (b - 1)` at most
//! from the adds that are done, for no CPU keeps more than `b - 1` to itself; and when no add is
//! under way, [`Counter::sum`] is exact. What it may be off by while there are is where they
//! differ; each type says it.
//!
//! No add is ever lost. A CPU adds from one thread of execution at a time, so not from an interrupt
//! handler that may come into an add.

mod gated;
mod locals;
mod locked;
mod sequence;

pub use gated::GatedCounter;
pub use locked::LockedCounter;
pub use sequence::SequenceCounter;

use crate::{Cpu, Pv, Watch};

/// How an addition went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added {
    /// It wrote what all CPUs share.
    pub shared: bool,
    /// Looks while a sum, or a lock, kept it waiting.
    pub waits: u32,
    /// Calls of [`Pv::lock_spinning`] in a lock.
    pub halts: u32,
    /// Calls of [`Pv::unlock_kick`] in its release.
    pub kicks: u32,
}

/// A counter with a place for each CPU.
pub trait Counter {
    /// Does a sum count no add twice? If not, it may be too large by one less than the batch for
    /// each CPU that is in the middle of an add.
    const EXACT: bool;

    /// Adds `amount`.
    fn add<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, amount: i64) -> Added;

    /// What all places hold; slow. It counts every add that was done before the call and none that
    /// begins after it; of those in between, some.
    fn sum<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> i64;

    /// What the shared place holds; one or two loads.
    fn read(&self) -> i64;

    /// As [`Counter::read`] of a counter that is known never to be negative.
    fn read_positive(&self) -> i64 {
        self.read().max(0)
    }

    /// Makes it `amount`. Only while nobody adds or sums.
    fn set<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, amount: i64);
}

/// The batch of Linux for `cpus` CPUs.
pub const fn usual_batch(cpus: usize) -> i32 {
    let twice = cpus as i32 * 2;
    if twice > 32 { twice } else { 32 }
}

#[cfg(test)]
mod tests;
