//! Per-CPU counters: every CPU adds to its own part, and folds it into a shared count once it
//! reaches the batch size.
//!
//! The three systems come from "percpu_counter: scalability works" (Linux 2011). They differ in how
//! they separate folds from sums: by a lock ([`LockedCounter`], mainline at that time), by a
//! sequence and a slow count ([`SequenceCounter`], V3 of the patch), and by gates
//! ([`GatedCounter`], proposed in its review).
//!
//! With `n` CPUs and batch `b`, for all three: [`Counter::read`] is off by at most `n * (b - 1)`
//! from the completed adds, because no CPU keeps more than `b - 1` to itself; and without
//! concurrent adds [`Counter::sum`] is exact. They differ in the error of a sum during concurrent
//! adds; each type documents it.
//!
//! No add is ever lost. A CPU must add from one context at a time: not from an interrupt handler
//! that may interrupt an add.

mod gated;
mod locals;
mod locked;
mod sequence;

pub use gated::GatedCounter;
pub use locked::LockedCounter;
pub use sequence::SequenceCounter;

use crate::{Cpu, Pv, Watch};

/// The cost of an addition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Addition {
    /// Whether the addition wrote to shared cache lines.
    pub shared: bool,
    /// Spin iterations while it waited for a sum; 1 if it waited for a lock.
    pub waits: u32,
    /// Calls of [`Pv::lock_spinning`] for a lock.
    pub halts: u32,
    /// Calls of [`Pv::unlock_kick`] at its release.
    pub kicks: u32,
}

/// A counter with a part for each CPU.
pub trait Counter {
    /// Whether a sum never counts an add twice. If not, it may be too large by up to the batch
    /// minus one for each CPU that is in the middle of an add.
    const EXACT: bool;

    /// Adds `amount`.
    fn add<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, amount: i64) -> Addition;

    /// The shared count and all parts; slow. Counts every add completed before the call, none that begins
    /// after it, and some of the concurrent adds.
    fn sum<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> i64;

    /// The shared count only; one or two loads.
    fn read(&self) -> i64;

    /// Like [`Counter::read`], for a counter that is known never to be negative.
    fn read_positive(&self) -> i64 {
        self.read().max(0)
    }

    /// Sets the counter to `amount`. Only while no CPU adds or sums.
    fn set<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, amount: i64);
}

/// Linux's batch for `cpus` CPUs.
pub const fn default_batch(cpus: usize) -> i32 {
    let twice = cpus as i32 * 2;
    if twice > 32 { twice } else { 32 }
}

#[cfg(test)]
mod tests;
