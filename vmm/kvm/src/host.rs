//! The kind of KVM that this host has.

use std::{arch::x86_64::__cpuid, fs, fs::OpenOptions, io::ErrorKind, path::Path};

/// KVM's device node.
pub const DEV_KVM: &str = "/dev/kvm";

/// What `/dev/kvm` offers. The distinction is from measurements on such hosts: a KVM that opens
/// although the CPU has neither VT-x nor AMD-V runs guest ring 3 natively and *emulates* guest ring
/// 0, too incompletely to boot Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvmKind {
    /// VT-x or AMD-V: every guest runs.
    Hardware,
    /// The device opens, but the CPU has neither: ring-3 payloads run, Linux does not.
    Software,
    /// There is no `/dev/kvm`.
    Absent,
    /// The device exists, but this user may not open it.
    Denied,
}

impl KvmKind {
    /// Examines this host.
    pub fn detect() -> KvmKind {
        Self::classify(open_error(Path::new(DEV_KVM)), &cpuinfo())
    }

    fn classify(open: Option<ErrorKind>, cpuinfo: &str) -> KvmKind {
        match open {
            Some(ErrorKind::PermissionDenied) => KvmKind::Denied,
            Some(_) => KvmKind::Absent,
            None if has_flag(cpuinfo, "vmx") || has_flag(cpuinfo, "svm") => KvmKind::Hardware,
            None => KvmKind::Software,
        }
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            KvmKind::Hardware => "hardware",
            KvmKind::Software => "software",
            KvmKind::Absent => "absent",
            KvmKind::Denied => "denied",
        }
    }

    /// Can a guest kernel (ring 0) run on it?
    pub fn runs_linux(self) -> bool {
        self == KvmKind::Hardware
    }

    /// Can a ring-3 payload run on it?
    pub fn runs_payload(self) -> bool {
        matches!(self, KvmKind::Hardware | KvmKind::Software)
    }
}

/// Is this a machine that QEMU's TCG emulates, so that AMD-V does not mean hardware? Its hypervisor
/// leaf says so (CPUID 0x4000_0000, "TCGTCGTCGTCG").
pub fn is_emulated() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    let leaf = __cpuid(0x4000_0000);
    let signature = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes);
    __cpuid(1).ecx & HYPERVISOR != 0 && signature.as_flattened() == b"TCGTCGTCGTCG"
}

/// Is the CPU from AMD (or Hygon), so that guests make hypercalls by VMMCALL? With VMCALL KVM would
/// have to patch the guest's code.
pub fn is_amd() -> bool {
    let leaf = __cpuid(0);
    let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
    [b"AuthenticAMD", b"HygonGenuine"].iter().any(|name| vendor.as_flattened() == *name)
}

/// Does the first `flags` line of `/proc/cpuinfo` contain this flag?
pub fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .and_then(|line| line.split_once(':'))
        .is_some_and(|(_, flags)| flags.split_whitespace().any(|f| f == flag))
}

/// `/proc/cpuinfo`, empty if unreadable.
pub fn cpuinfo() -> String {
    fs::read_to_string("/proc/cpuinfo").unwrap_or_default()
}

fn open_error(path: &Path) -> Option<ErrorKind> {
    OpenOptions::new().read(true).write(true).open(path).err().map(|error| error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SVM: &str = "processor\t: 0\nflags\t\t: fpu svm sse\n";
    const PLAIN: &str = "processor\t: 0\nflags\t\t: fpu svm_lock sse\n";

    #[test]
    fn kinds_are_told_apart() {
        assert_eq!(KvmKind::classify(None, SVM), KvmKind::Hardware);
        assert_eq!(KvmKind::classify(None, PLAIN), KvmKind::Software);
        assert_eq!(KvmKind::classify(Some(ErrorKind::NotFound), SVM), KvmKind::Absent);
        assert_eq!(KvmKind::classify(Some(ErrorKind::PermissionDenied), SVM), KvmKind::Denied);
    }
}
