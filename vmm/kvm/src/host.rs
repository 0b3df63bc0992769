//! The kind of KVM that this host has.

use std::{
    arch::x86_64::{__cpuid, CpuidResult},
    fs::{self, OpenOptions},
    io::ErrorKind,
    path::Path,
};

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
        Self::classify(open_error(Path::new(DEV_KVM)), has_virtualization())
    }

    fn classify(open: Option<ErrorKind>, has_virtualization: bool) -> KvmKind {
        match open {
            Some(ErrorKind::PermissionDenied) => KvmKind::Denied,
            Some(_) => KvmKind::Absent,
            None if has_virtualization => KvmKind::Hardware,
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

/// Has the CPU VT-x or AMD-V?
pub fn has_virtualization() -> bool {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    ["vmx", "svm"].iter().any(|name| flag(&cpuinfo, Some(cpuid), name) == Some(true))
}

/// The answer of CPUID to a leaf, subleaf 0: of this CPU, or of a test's.
pub type Cpuid = fn(u32) -> CpuidResult;

/// This CPU's answer.
pub fn cpuid(leaf: u32) -> CpuidResult {
    __cpuid(leaf)
}

/// Has this text of `/proc/cpuinfo` flags?
pub fn has_flags(cpuinfo: &str) -> bool {
    flags(cpuinfo).is_some()
}

fn flags(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    line.split_once(':').map(|(_, flags)| flags)
}

/// Does the first `flags` line of this text of `/proc/cpuinfo` contain a flag? A container may have none (lxcfs): then
/// CPUID is asked. None: unknown.
pub fn flag(cpuinfo: &str, cpuid: Option<Cpuid>, name: &str) -> Option<bool> {
    match flags(cpuinfo) {
        Some(flags) => Some(flags.split_whitespace().any(|word| word == name)),
        None => cpuid.and_then(|cpuid| in_cpuid(cpuid, name)),
    }
}

/// The bit of CPUID that makes Linux set a flag; None for flags that have no such bit here (Intel SDM volume 2, CPUID;
/// AMD APM volume 3, appendix E). An invariant TSC gives two flags.
fn in_cpuid(cpuid: Cpuid, name: &str) -> Option<bool> {
    const EXTENDED: u32 = 0x8000_0000;
    let (leaf, register, bit): (u32, fn(CpuidResult) -> u32, u32) = match name {
        "vmx" => (1, |leaf| leaf.ecx, 5),
        "x2apic" => (1, |leaf| leaf.ecx, 21),
        "tsc_deadline_timer" => (1, |leaf| leaf.ecx, 24),
        "hypervisor" => (1, |leaf| leaf.ecx, 31),
        "svm" => (EXTENDED + 1, |leaf| leaf.ecx, 2),
        "constant_tsc" | "nonstop_tsc" => (EXTENDED + 7, |leaf| leaf.edx, 8),
        _ => return None,
    };
    let last = cpuid(leaf & EXTENDED).eax;
    Some(leaf <= last && register(cpuid(leaf)) & (1 << bit) != 0)
}

fn open_error(path: &Path) -> Option<ErrorKind> {
    OpenOptions::new().read(true).write(true).open(path).err().map(|error| error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        assert_eq!(KvmKind::classify(None, true), KvmKind::Hardware);
        assert_eq!(KvmKind::classify(None, false), KvmKind::Software);
        assert_eq!(KvmKind::classify(Some(ErrorKind::NotFound), true), KvmKind::Absent);
        assert_eq!(KvmKind::classify(Some(ErrorKind::PermissionDenied), true), KvmKind::Denied);
    }

    fn intel(leaf: u32) -> CpuidResult {
        let (eax, ecx) = match leaf {
            0 => (0x16, 0),
            1 => (0, 1 << 5 | 1 << 21),
            0x8000_0000 => (0x8000_0008, 0),
            _ => (0, 0),
        };
        CpuidResult { eax, ebx: 0, ecx, edx: 0 }
    }

    fn amd(leaf: u32) -> CpuidResult {
        let (eax, ecx) = match leaf {
            0x8000_0000 => (0x8000_0001, 0),
            0x8000_0001 => (0, 1 << 2),
            _ => (0, 0),
        };
        // Beyond the last leaf a CPU answers as it likes.
        CpuidResult { eax, ebx: 0, ecx, edx: u32::MAX }
    }

    /// Regression (G05 of tests/HISTORY.md): without cpuinfo a CPU had neither VT-x nor AMD-V.
    #[test]
    fn flags_are_those_of_cpuinfo_or_else_of_cpuid() {
        const SVM: &str = "processor\t: 0\nflags\t\t: fpu svm sse\n";
        const PLAIN: &str = "processor\t: 0\nflags\t\t: fpu svm_lock sse\n";
        for (text, cpuid, name, expected) in [
            (SVM, None, "svm", Some(true)),
            (SVM, Some(intel as Cpuid), "vmx", Some(false)),
            (PLAIN, Some(amd), "svm", Some(false)),
            ("", Some(intel), "vmx", Some(true)),
            ("", Some(intel), "x2apic", Some(true)),
            ("", Some(intel), "svm", Some(false)),
            ("", Some(amd), "svm", Some(true)),
            ("", Some(amd), "vmx", Some(false)),
            ("", Some(amd), "nonstop_tsc", Some(false)),
            ("\0garbage", Some(amd), "svm", Some(true)),
            ("", Some(intel), "sse", None),
            ("", None, "vmx", None),
        ] {
            assert_eq!(flag(text, cpuid, name), expected, "{name} in {text:?}");
        }
    }
}
