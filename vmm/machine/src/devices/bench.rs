//! The benchmark steps that a guest reports to the measuring host.

use std::fmt;

use base::{counters::MachineCounts, host_counts::HostCounts};

/// A benchmark step reported by the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchStep {
    /// The workers are ready.
    Ready,
    /// The window begins. The guest has just read its own counters.
    Begins,
    /// The window ends. The guest has just read its own counters.
    Ends,
}

/// Receives the steps of one machine's benchmark. Called by the vCPU that reports a step, a
/// few times per run.
pub trait Bench: fmt::Debug + Send + Sync {
    /// Handles a step. The counts are the VMM's and the host kernel's for this machine so far.
    fn step(&self, step: BenchStep, counts: MachineCounts, host: HostCounts);

    /// Whether all machines have reached this machine's last barrier, or exited.
    fn is_gate_open(&self) -> bool;
}
