//! `--host`: where a guest runs.

use std::env;

use clap::ValueEnum;
use thiserror::Error;

use kvm::KvmKind;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostMode {
    /// This host's KVM if it can run the guest, the emulated host otherwise.
    Auto,
    /// This host's KVM.
    Direct,
    /// A machine with AMD-V that QEMU emulates on this host.
    Emulated,
}

/// Where the guest will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On this host's KVM.
    Direct,
    /// In the emulated host.
    Emulated,
}

/// What a guest needs from KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestClass {
    /// Ring 0: a kernel, or a payload that executes HLT.
    Ring0,
    /// Ring 3 only.
    Payload,
}

/// A place and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Where the guest runs.
    pub place: Place,
    /// The reason, as half a sentence.
    pub why: &'static str,
}

/// Decides where a guest of this class runs on a host with this kind of KVM.
pub fn choose(mode: HostMode, class: GuestClass, kind: KvmKind) -> Choice {
    use GuestClass::{Payload, Ring0};
    use KvmKind::{Absent, Denied, Hardware, Software};
    let (place, why) = match (mode, class, kind) {
        (HostMode::Direct, ..) => (Place::Direct, "asked for"),
        (HostMode::Emulated, ..) => (Place::Emulated, "asked for"),
        (HostMode::Auto, _, Hardware) => (Place::Direct, "the CPU has VT-x or AMD-V"),
        (HostMode::Auto, Payload, Software) => {
            (Place::Direct, "software KVM runs ring-3 payloads natively")
        }
        (HostMode::Auto, Ring0, Software) => {
            (Place::Emulated, "software KVM cannot run guest kernels")
        }
        (HostMode::Auto, _, Absent) => (Place::Emulated, "there is no /dev/kvm"),
        (HostMode::Auto, _, Denied) => (Place::Emulated, "/dev/kvm may not be opened"),
    };
    Choice { place, why }
}

/// Environment variable: try a guest kernel on a software KVM all the same. An unmodified kernel
/// runs there for minutes, at about 0.6 us per instruction, and then dies.
pub const TRUST_KVM: &str = "PVTICKET_TRUST_KVM";

/// This host's KVM cannot run guest kernels.
#[derive(Debug, Error)]
#[error(
    "this host's KVM is a software one (no VT-x, no AMD-V), which cannot run guest kernels: \
     use --host emulated"
)]
pub struct CannotRunKernels;

/// Rejects a direct run that would fail only after minutes. `Absent` and `Denied` are reported by
/// KVM's own errors, with their own advice.
pub fn check_direct(class: GuestClass, kind: KvmKind) -> Result<(), CannotRunKernels> {
    let hopeless = (class, kind) == (GuestClass::Ring0, KvmKind::Software);
    match hopeless && env::var_os(TRUST_KVM).is_none() {
        true => Err(CannotRunKernels),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_follows_the_kind_of_kvm() {
        let place = |class, kind| choose(HostMode::Auto, class, kind).place;
        assert_eq!(place(GuestClass::Ring0, KvmKind::Hardware), Place::Direct);
        assert_eq!(place(GuestClass::Ring0, KvmKind::Software), Place::Emulated);
        assert_eq!(place(GuestClass::Payload, KvmKind::Software), Place::Direct);
        assert_eq!(place(GuestClass::Payload, KvmKind::Absent), Place::Emulated);
        assert_eq!(place(GuestClass::Ring0, KvmKind::Denied), Place::Emulated);
    }
}
