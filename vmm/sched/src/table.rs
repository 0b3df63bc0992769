//! The state of each vCPU and slot, and a policy's view of it.

use serde::{Deserialize, Serialize};

use super::{
    event::{LockActivity, Observation, VcpuIndex},
    log::SliceIndex,
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
    /// Running on this slot.
    Running(SlotId),
    /// Held off on purpose until this time.
    Held(Nanos),
    /// Halted in the VMM until it is kicked.
    Halted,
    /// Without a slot, in KVM's HLT or because its thread blocks.
    Idle,
    /// The vCPU's thread has exited; final.
    #[serde(rename = "gone")]
    Exited,
}

#[derive(Debug)]
pub(super) struct Vcpu {
    pub(super) member: Member,
    pub(super) state: State,
    /// Last observation outside the guest.
    pub(super) observed: Observation,
    /// Start of its time slice.
    pub(super) granted_at: Nanos,
    pub(super) deadline: Nanos,
    /// A kick arrived before the halt it is meant for.
    pub(super) pending_kick: bool,
    pub(super) slice: SliceIndex,
}

/// A policy's view of the schedule.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The time of this step.
    pub now: Nanos,
    pub(super) vcpus: &'a [Vcpu],
    pub(super) slots: &'a [Option<VcpuIndex>],
}

impl View<'_> {
    /// Returns the slot of `vcpu` if it is running.
    pub fn slot_of(&self, vcpu: VcpuIndex) -> Option<SlotId> {
        match self.vcpus[vcpu.ix()].state {
            State::Running(slot) => Some(slot),
            _ => None,
        }
    }

    /// Whether `vcpu` is halted, in the VMM or in KVM, or its thread blocks.
    pub fn is_halted(&self, vcpu: VcpuIndex) -> bool {
        matches!(self.vcpus[vcpu.ix()].state, State::Halted | State::Idle)
    }

    /// Whether the thread of `vcpu` has exited.
    pub fn has_exited(&self, vcpu: VcpuIndex) -> bool {
        self.vcpus[vcpu.ix()].state == State::Exited
    }

    /// Returns the lock activity of `vcpu` when it was last observed outside the guest.
    pub fn activity(&self, vcpu: VcpuIndex) -> &LockActivity {
        &self.vcpus[vcpu.ix()].observed.activity
    }

    /// Returns the deadline of a running vCPU.
    pub fn deadline(&self, vcpu: VcpuIndex) -> Nanos {
        self.vcpus[vcpu.ix()].deadline
    }

    /// Returns the time since the slot was granted to `vcpu`.
    pub fn ran(&self, vcpu: VcpuIndex) -> Nanos {
        self.now.since(self.vcpus[vcpu.ix()].granted_at)
    }

    /// Returns the index of the vCPU's VM.
    pub fn vm_of(&self, vcpu: VcpuIndex) -> u32 {
        self.vcpus[vcpu.ix()].member.vm
    }

    /// Returns the vCPU's weight; 1024 is the default.
    pub fn weight_of(&self, vcpu: VcpuIndex) -> u32 {
        self.vcpus[vcpu.ix()].member.weight
    }

    /// Whether any vCPU is running.
    pub fn is_any_running(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// Returns the lowest free slot.
    pub fn free_slot(&self) -> Option<SlotId> {
        self.slots.iter().position(Option::is_none).map(|ix| SlotId(ix as u32))
    }
}
