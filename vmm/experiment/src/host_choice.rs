//! Chooses where a guest runs: on this host's KVM, or in the emulated host with one of its kernels.

use std::{env, sync::Once};

use thiserror::Error;

use crate::Usage;
use base::{names, units::CpuList};
use kvm::{
    KvmKind,
    host::{DEV_KVM, has_virtualization},
};
use os::streams::eprint_line;
use study::{
    host_facts::HostFacts,
    point::{HostKernel, HostKind},
};

/// Host requested by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMode {
    /// This host's KVM if it can run the guest, the emulated host otherwise.
    Auto,
    /// This host's KVM.
    Direct,
    /// An AMD-V machine that QEMU emulates on this host.
    Emulated,
}

names!(
    HostMode, "unknown host '{}': auto, direct, emulated":
    Auto "auto", Direct "direct", Emulated "emulated"
);

/// Requirements of a guest on KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestClass {
    /// Ring 0: a kernel, or a payload that executes HLT.
    Ring0,
    /// Ring 3 only.
    Payload,
}

/// A place for a guest, and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChosenPlace {
    /// Where the guest runs.
    pub place: HostKind,
    /// The reason, as a clause.
    pub reason: &'static str,
}

/// Decides where a guest of this class runs on a host with this kind of KVM.
pub fn choose(mode: HostMode, class: GuestClass, kind: KvmKind) -> ChosenPlace {
    use GuestClass::{Payload, Ring0};
    use KvmKind::{Absent, Denied, Hardware, Software};
    let (place, reason) = match (mode, class, kind) {
        (HostMode::Direct, ..) => (HostKind::Direct, "requested"),
        (HostMode::Emulated, ..) => (HostKind::Emulated, "requested"),
        (HostMode::Auto, _, Hardware) => (HostKind::Direct, "the CPU has VT-x or AMD-V"),
        (HostMode::Auto, Payload, Software) => {
            (HostKind::Direct, "software KVM runs ring-3 payloads natively")
        }
        (HostMode::Auto, Ring0, Software) => {
            (HostKind::Emulated, "software KVM cannot run guest kernels")
        }
        (HostMode::Auto, _, Absent) => (HostKind::Emulated, "there is no /dev/kvm"),
        (HostMode::Auto, _, Denied) => (HostKind::Emulated, "no permission to open /dev/kvm"),
    };
    ChosenPlace { place, reason }
}

/// Calls [`choose`] for this host, whose KVM is of this kind. Prints a line if only the user's permissions
/// keep the guest off KVM, because speed cannot be measured in an emulated host.
pub fn choose_here(mode: HostMode, class: GuestClass, kind: KvmKind) -> ChosenPlace {
    static NOTED: Once = Once::new();
    let choice = choose(mode, class, kind);
    if choice.place == HostKind::Emulated && is_only_denied(mode, class, kind, has_virtualization())
    {
        NOTED.call_once(|| {
            eprint_line(format_args!(
                "pvticket: no permission to open {DEV_KVM}; guests run in the emulated host: join its group \
                 (usermod -aG kvm $USER) or run as root"
            ));
        });
    }
    choice
}

/// Whether the guest would run on this host's KVM if it could be opened.
fn is_only_denied(mode: HostMode, class: GuestClass, kind: KvmKind, is_hardware: bool) -> bool {
    mode == HostMode::Auto
        && kind == KvmKind::Denied
        && (class == GuestClass::Payload || is_hardware)
}

/// Environment variable: try a guest kernel on a software KVM anyway. An unmodified kernel runs there for
/// minutes, at about 0.6 us per instruction, and then dies.
pub const TRUST_KVM: &str = "PVTICKET_TRUST_KVM";

/// This host's KVM cannot run guest kernels.
#[derive(Debug, Error)]
#[error(
    "this host's KVM is a software KVM (no VT-x or AMD-V), which cannot run guest kernels: \
     use --host emulated"
)]
pub struct CannotRunKernels;

/// Rejects a direct run that would fail only after minutes. KVM's own errors report `Absent` and `Denied`,
/// with their own advice.
pub fn check_direct(class: GuestClass, kind: KvmKind) -> Result<(), CannotRunKernels> {
    let hopeless = (class, kind) == (GuestClass::Ring0, KvmKind::Software);
    if hopeless && env::var_os(TRUST_KVM).is_none() { Err(CannotRunKernels) } else { Ok(()) }
}

/// Prints a note if the control group of this process gets less CPU time than a run on these CPUs would use.
pub fn with_quota_note(facts: HostFacts, cpus: &CpuList) -> HostFacts {
    if let Some(concern) = facts.quota_warning(cpus.cpus().len()) {
        eprint_line(format_args!("pvticket: {concern}"));
    }
    facts
}

/// Environment variable: the default of `--host-kernel`.
const HOST_KERNEL: &str = "PVTICKET_HOST_KERNEL";

/// The kernel requested for the emulated host, if any.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostKernelChoice(pub Option<HostKernel>);

impl HostKernelChoice {
    /// Returns the kernel: the requested one, the environment's, or the default.
    pub fn kernel(self) -> Result<HostKernel, Usage> {
        self.kernel_from(env::var(HOST_KERNEL).ok().as_deref())
    }

    fn kernel_from(self, variable: Option<&str>) -> Result<HostKernel, Usage> {
        match (self.0, variable) {
            (Some(kernel), _) => Ok(kernel),
            (None, None | Some("")) => Ok(HostKernel::default()),
            (None, Some(name)) => {
                let known = HostKernel::ALL.into_iter().find(|kernel| kernel.name() == name);
                known.ok_or_else(|| Usage(format!("{HOST_KERNEL}={name}: must be 6.1 or 7")))
            }
        }
    }

    /// Rejects the choice where nothing runs in the emulated host.
    pub fn check(self, starts_emulated_host: bool) -> Result<(), Usage> {
        match self.0 {
            Some(kernel) if !starts_emulated_host => Err(Usage(format!(
                "--host-kernel {kernel}: nothing here runs in the emulated host; add --host emulated"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_overrides_environment() {
        let resolve = |option: Option<HostKernel>, variable| {
            let kernel = HostKernelChoice(option).kernel_from(variable);
            kernel.map_err(|Usage(error)| error)
        };
        assert_eq!(resolve(None, None), Ok(HostKernel::Linux6_1));
        assert_eq!(resolve(None, Some("")), Ok(HostKernel::Linux6_1));
        assert_eq!(resolve(None, Some("7")), Ok(HostKernel::Linux7));
        assert_eq!(resolve(Some(HostKernel::Linux6_1), Some("7")), Ok(HostKernel::Linux6_1));
        let error = resolve(None, Some("8")).unwrap_err();
        assert!(error.contains("PVTICKET_HOST_KERNEL") && error.contains("6.1 or 7"), "{error}");
    }

    #[test]
    fn unused_host_kernel_is_rejected() {
        let choice = HostKernelChoice(Some(HostKernel::Linux7));
        assert!(choice.check(true).is_ok() && HostKernelChoice::default().check(false).is_ok());
        let Usage(error) = choice.check(false).unwrap_err();
        assert!(
            error.starts_with("--host-kernel 7:") && error.contains("--host emulated"),
            "{error}"
        );
    }

    #[test]
    fn auto_follows_the_kind_of_kvm() {
        let place = |class, kind| choose(HostMode::Auto, class, kind).place;
        assert_eq!(place(GuestClass::Ring0, KvmKind::Hardware), HostKind::Direct);
        assert_eq!(place(GuestClass::Ring0, KvmKind::Software), HostKind::Emulated);
        assert_eq!(place(GuestClass::Payload, KvmKind::Software), HostKind::Direct);
        assert_eq!(place(GuestClass::Payload, KvmKind::Absent), HostKind::Emulated);
        assert_eq!(place(GuestClass::Ring0, KvmKind::Denied), HostKind::Emulated);
    }

    /// Regression: figures of the emulated host, some thousand times lower, had no note.
    #[test]
    fn missing_permission_is_reported() {
        use GuestClass::{Payload, Ring0};
        use KvmKind::{Absent, Denied};
        let is_reported =
            |class, kind, is_hardware| is_only_denied(HostMode::Auto, class, kind, is_hardware);
        assert!(is_reported(Payload, Denied, false) && is_reported(Ring0, Denied, true));
        assert!(!is_reported(Ring0, Denied, false), "its KVM could not run it anyway");
        assert!(!is_reported(Payload, Absent, true));
        assert!(!is_only_denied(HostMode::Emulated, Payload, Denied, true), "requested");
    }
}
