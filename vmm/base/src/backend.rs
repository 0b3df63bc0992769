//! The side that serves a guest's halts and kicks. Guests, workloads and machines all refer to it.

use crate::names;

/// Which side serves the PV ticketlock's halts and kicks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PvBackend {
    /// This VMM, through its ports.
    Vmm,
    /// HLT in KVM, and a doorbell port whose kicks KVM delivers without the VMM.
    Doorbell,
    /// KVM itself: HLT and `KVM_HC_KICK_CPU`.
    Kvm,
    /// None: the guest's locks only spin.
    Off,
}

names!(
    PvBackend, "unknown backend '{}' (expected: vmm, doorbell, kvm or off)":
    Vmm "vmm", Doorbell "doorbell", Kvm "kvm", Off "off"
);

impl PvBackend {
    /// Does a payload that uses this backend run in ring 0?
    pub const fn needs_ring_0(self) -> bool {
        matches!(self, Self::Doorbell | Self::Kvm)
    }

    /// Parameters that it adds to the kernel's command line. `nopvspin` makes stock kernels use
    /// native queued locks; without any PV they would fall back to test-and-set.
    pub const fn kernel_parameters(self) -> &'static str {
        match self {
            PvBackend::Vmm => "pvticket=vmm",
            PvBackend::Doorbell => "pvticket=doorbell",
            PvBackend::Kvm => "pvticket=kvm",
            PvBackend::Off => "pvticket=off nopvspin",
        }
    }
}
