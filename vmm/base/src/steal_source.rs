//! The writer of the steal-time records of Linux guests.

use crate::names;

/// The writer of a Linux guest's steal time, and of the flag that a vCPU is preempted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StealSource {
    /// KVM: the run-queue delay of the vCPU's thread. A vCPU that has left `KVM_RUN`, as without a slot, is not marked as
    /// preempted.
    #[default]
    Kvm,
    /// This program's schedule.
    Schedule,
    /// Nobody: steal time is not offered to the guest.
    Off,
}

names!(
    StealSource, "unknown writer of steal time '{}' (expected: kvm, schedule or none)":
    Kvm "kvm", Schedule "schedule", Off "none"
);

impl StealSource {
    /// Whether KVM is the writer, which stores omit.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub fn is_kvm(&self) -> bool {
        *self == Self::Kvm
    }
}
