//! Decisions of a schedule that are kept, or that come from a recording.

use base::units::Nanos;
use sched::accounting::{Preemption, Totals};
use sched::log::{Log, Turn};
use sched::recording::Recording;

use crate::spec::{Spec, SpecError};

/// What a simulation does with its schedule's decisions beside carrying them out.
#[derive(Debug, Default, Clone, Copy)]
pub struct Decisions<'a> {
    /// The recording that the policy `replay` follows: made here or with real vCPUs.
    pub replayed: Option<&'a Recording>,
    /// Keep them, for [`Sim::recording`](super::Sim::recording).
    pub are_kept: bool,
}

/// What is kept of a schedule for a timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The time up to which it is simulated.
    pub now: Nanos,
    /// The turns, in the order in which they began.
    pub turns: Vec<Turn>,
    /// Turns for which there was no room.
    pub lost_turns: u64,
    /// The first preemptions, each with what the vCPU was doing.
    pub preemptions: Vec<Preemption>,
    /// The schedule's sums.
    pub totals: Totals,
}

impl Decisions<'_> {
    /// Does the policy have what it replays, of as many vCPUs and slots?
    pub(super) fn check(&self, spec: &Spec) -> Result<(), SpecError> {
        if spec.policy.replays().is_none() {
            return Ok(());
        }
        let recording = self.replayed.ok_or(SpecError::NoRecording)?;
        let (vcpus, slots) = (recording.vcpus, recording.slots);
        match (vcpus as usize, slots as usize) == (spec.all_vcpus(), spec.cpus) {
            true => Ok(()),
            false => Err(SpecError::OtherSize { vcpus, slots }),
        }
    }

    pub(super) fn log(&self) -> Log {
        if self.are_kept { Log::new() } else { Log::brief() }
    }
}
