//! Decisions of a schedule that are kept, or that come from a recording.

use sched::log::Log;
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
