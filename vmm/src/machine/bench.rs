//! What a guest says of its benchmark, for whoever measures it.

use std::fmt;

use super::counters::MachineCounts;

/// A step of a benchmark that the guest announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its workers are ready.
    Ready,
    /// Its window begins: the guest has just read its own counters.
    Begins,
    /// Its window ends: the same.
    Ends,
}

/// Takes note of the steps of one machine's benchmark. Called by the vCPU that announces one,
/// a few times in a run.
pub trait Bench: fmt::Debug + Send + Sync {
    /// A step, and what the VMM has counted of the machine until then.
    fn step(&self, step: Step, counts: MachineCounts);

    /// Have all machines of the run come to the last step at which they wait for each other?
    fn is_open(&self) -> bool;
}
