//! Pending events of a vCPU that is outside the guest, other than kicks.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use kvm_bindings::kvm_vcpu_events;
use vmm_sys_util::ioctl::ioctl_with_mut_ref;

use super::{Vcpu, requests::KVM_GET_VCPU_EVENTS};

/// A second descriptor of a vCPU, used to query its pending events while its thread sleeps.
#[derive(Debug)]
pub struct Pending(OwnedFd);

impl Pending {
    /// Duplicates the descriptor of `vcpu`.
    pub fn open(vcpu: &Vcpu) -> io::Result<Self> {
        // SAFETY: the descriptor stays open for as long as `vcpu` is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(vcpu.file().as_raw_fd()) };
        fd.try_clone_to_owned().map(Self)
    }

    /// Whether an NMI or INIT is pending, which arrives even with interrupts disabled. False on
    /// error. Blocks while the vCPU is in the guest.
    pub fn is_urgent(&self) -> bool {
        let mut events = kvm_vcpu_events::default();
        // SAFETY: the kernel writes a `struct kvm_vcpu_events`, the type of `events`.
        let result = unsafe { ioctl_with_mut_ref(&self.0, KVM_GET_VCPU_EVENTS(), &mut events) };
        result == 0 && (events.nmi.pending != 0 || events.smi.latched_init != 0)
    }
}
