//! The specification of a schedule.

use std::sync::Arc;

use base::units::Nanos;
use sched::{PolicySpec, recording::Recording};

/// A schedule to enforce.
#[derive(Debug, Clone)]
pub struct ScheduleSpec {
    /// The policy that decides. `host` leaves the vCPUs to the host's scheduler: there is no driver then.
    pub policy: PolicySpec,
    /// The host CPU of each slot.
    pub cpus: Vec<usize>,
    /// The slice: how long a turn lasts.
    pub slice: Nanos,
    /// Seed of everything random.
    pub seed: u64,
    /// The recording that the policy `replay` repeats.
    pub recording: Option<Arc<Recording>>,
    /// Log every turn, to write a recording.
    pub record: bool,
}

impl ScheduleSpec {
    /// A schedule that neither records nor replays nor compares.
    pub const fn new(policy: PolicySpec, cpus: Vec<usize>, slice: Nanos, seed: u64) -> Self {
        Self { policy, cpus, slice, seed, recording: None, record: false }
    }
}
