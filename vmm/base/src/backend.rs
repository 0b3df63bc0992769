//! The side that serves a guest's halts and kicks. Guests, workloads and machines all refer to it.

use std::{fmt, str::FromStr};

/// Which side serves the PV ticketlock's halts and kicks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl PvBackend {
    /// All backends, in the order of the command line's help.
    pub const ALL: [PvBackend; 4] =
        [PvBackend::Vmm, PvBackend::Doorbell, PvBackend::Kvm, PvBackend::Off];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            PvBackend::Vmm => "vmm",
            PvBackend::Doorbell => "doorbell",
            PvBackend::Kvm => "kvm",
            PvBackend::Off => "off",
        }
    }

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

impl fmt::Display for PvBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PvBackend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|backend| backend.name() == text).ok_or_else(|| {
            format!("unknown backend '{text}' (expected: vmm, doorbell, kvm or off)")
        })
    }
}
