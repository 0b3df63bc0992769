//! What is known of each vCPU and slot, and how a policy sees it.

use serde::{Deserialize, Serialize};

use super::{
    event::{LockActivity, Observation, VcpuIndex},
    log::TurnIndex,
};
use base::units::{Nanos, SlotId};

/// One vCPU of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Index of its VM.
    pub vm: u32,
    /// Scheduling weight; 1024 is the default.
    pub weight: u32,
}

/// A vCPU's scheduling state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The vCPU's thread has not reported [`Event::Started`](super::Event::Started) yet.
    New,
    /// Waiting for a slot.
    Ready,
    /// Has this slot.
    Running(SlotId),
    /// Held off on purpose until this time.
    Held(Nanos),
    /// Halted in the VMM until it is kicked.
    Halted,
    /// In KVM's HLT, without a slot.
    Idle,
    /// The vCPU's thread has left; final.
    Gone,
}

#[derive(Debug)]
pub(super) struct Vcpu {
    pub(super) member: Member,
    pub(super) state: State,
    /// Observed at its last stop.
    pub(super) look: Observation,
    /// Start of its turn.
    pub(super) since: Nanos,
    pub(super) deadline: Nanos,
    /// A kick arrived before the halt it is meant for.
    pub(super) kick: bool,
    pub(super) turn: TurnIndex,
}

/// The schedule as a policy sees it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The time of this step.
    pub now: Nanos,
    pub(super) vcpus: &'a [Vcpu],
    pub(super) slots: &'a [Option<VcpuIndex>],
}

impl View<'_> {
    /// The slot it has, if it is running.
    pub fn slot_of(&self, vcpu: VcpuIndex) -> Option<SlotId> {
        match self.vcpus[vcpu.ix()].state {
            State::Running(slot) => Some(slot),
            _ => None,
        }
    }

    /// Is it halted, in the VMM or in KVM?
    pub fn is_halted(&self, vcpu: VcpuIndex) -> bool {
        matches!(self.vcpus[vcpu.ix()].state, State::Halted | State::Idle)
    }

    /// Has its thread left?
    pub fn is_gone(&self, vcpu: VcpuIndex) -> bool {
        self.vcpus[vcpu.ix()].state == State::Gone
    }

    /// What it was doing when it was last observed outside the guest.
    pub fn last_seen(&self, vcpu: VcpuIndex) -> &LockActivity {
        &self.vcpus[vcpu.ix()].look.activity
    }

    /// When the turn of a running vCPU ends.
    pub fn until(&self, vcpu: VcpuIndex) -> Nanos {
        self.vcpus[vcpu.ix()].deadline
    }

    /// How long its turn has lasted so far.
    pub fn ran(&self, vcpu: VcpuIndex) -> Nanos {
        self.now.since(self.vcpus[vcpu.ix()].since)
    }

    /// Index of the vCPU's VM.
    pub fn vm_of(&self, vcpu: VcpuIndex) -> u32 {
        self.vcpus[vcpu.ix()].member.vm
    }

    /// The vCPU's weight; 1024 is the default.
    pub fn weight_of(&self, vcpu: VcpuIndex) -> u32 {
        self.vcpus[vcpu.ix()].member.weight
    }

    /// Is any vCPU running?
    pub fn anybody_runs(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// The lowest free slot.
    pub fn free_slot(&self) -> Option<SlotId> {
        self.slots.iter().position(Option::is_none).map(|ix| SlotId(ix as u32))
    }
}
