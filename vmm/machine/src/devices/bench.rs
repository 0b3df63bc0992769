//! What a guest announces of its benchmark, for the host that measures it.

use std::fmt;

use base::{counters::MachineCounts, host_counts::HostCounts};

/// A step of a benchmark that the guest announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchStep {
    /// The workers are ready.
    Ready,
    /// The window begins: the guest has just read its own counters.
    Begins,
    /// The window ends: the guest has just read its own counters.
    Ends,
}

/// Receives the steps of one machine's benchmark. Called by the vCPU that announces one, a few
/// times per run.
pub trait Bench: fmt::Debug + Send + Sync {
    /// A step, and what the VMM and the host's kernel have counted of the machine so far.
    fn step(&self, step: BenchStep, counts: MachineCounts, host: HostCounts);

    /// Have all machines of the run reached the last step at which they wait for each other?
    fn is_open(&self) -> bool;
}
