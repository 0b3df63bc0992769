//! What waits for a vCPU outside the guest, beside kicks.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use kvm_bindings::{KVMIO, kvm_vcpu_events};
use vmm_sys_util::{ioctl::ioctl_with_mut_ref, ioctl_ior_nr};

use super::Vcpu;

ioctl_ior_nr!(KVM_GET_VCPU_EVENTS, KVMIO, 0x9f, kvm_vcpu_events);

/// A second descriptor of a vCPU, to ask KVM what it has pending while its thread sleeps.
#[derive(Debug)]
pub struct Pending(OwnedFd);

impl Pending {
    /// Of this vCPU.
    pub fn open(vcpu: &Vcpu) -> io::Result<Self> {
        // SAFETY: the descriptor stays open for as long as `vcpu` is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(vcpu.file().as_raw_fd()) };
        fd.try_clone_to_owned().map(Self)
    }

    /// Has it an NMI or an INIT to take, which masked interrupts do not hold up? Waits while the
    /// vCPU is in the guest.
    pub fn is_urgent(&self) -> bool {
        let mut events = kvm_vcpu_events::default();
        // SAFETY: the kernel writes a `struct kvm_vcpu_events`, which `events` is.
        let result = unsafe { ioctl_with_mut_ref(&self.0, KVM_GET_VCPU_EVENTS(), &mut events) };
        result == 0 && (events.nmi.pending != 0 || events.smi.latched_init != 0)
    }
}
