//! What schedule to enforce.

use std::sync::Arc;

use base::units::Nanos;
use sched::{PolicySpec, recording::Recording};

/// A schedule to enforce.
#[derive(Debug, Clone)]
pub struct ScheduleSpec {
    /// The policy that decides; not `host`.
    pub policy: PolicySpec,
    /// The host CPU of each slot.
    pub cpus: Vec<usize>,
    /// The slice: how long a turn lasts.
    pub slice: Nanos,
    /// Seed of everything random.
    pub seed: u64,
    /// The recording to replay, for `replay`.
    pub recording: Option<Arc<Recording>>,
    /// Log every turn, for a recording.
    pub record: bool,
}

impl ScheduleSpec {
    /// A schedule that neither records nor replays.
    pub const fn new(policy: PolicySpec, cpus: Vec<usize>, slice: Nanos, seed: u64) -> Self {
        Self { policy, cpus, slice, seed, recording: None, record: false }
    }
}
