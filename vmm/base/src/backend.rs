//! Backends for a guest's halts and kicks, used by guests, workloads and machines.

use crate::names;

/// The component that serves the PV ticketlock's halts and kicks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PvBackend {
    /// This VMM, through I/O ports.
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
    /// Whether a payload that uses this backend runs in ring 0.
    pub const fn needs_ring_0(self) -> bool {
        matches!(self, Self::Doorbell | Self::Kvm)
    }

    /// Kernel command-line parameters for this backend. `nopvspin` makes stock kernels use native
    /// queued locks; without PV lock support they would otherwise fall back to test-and-set.
    pub const fn kernel_parameters(self) -> &'static str {
        match self {
            PvBackend::Vmm => "pvticket=vmm",
            PvBackend::Doorbell => "pvticket=doorbell",
            PvBackend::Kvm => "pvticket=kvm",
            PvBackend::Off => "pvticket=off nopvspin",
        }
    }
}
