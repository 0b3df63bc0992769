//! Detects the kind of KVM that this host provides.

use std::{
    arch::x86_64::{__cpuid, CpuidResult},
    fs::{self, OpenOptions},
    io::ErrorKind,
    path::Path,
};

/// KVM's device node.
pub const DEV_KVM: &str = "/dev/kvm";

/// Capability of `/dev/kvm`. The distinction comes from measurements: where KVM opens although the CPU has
/// neither VT-x nor AMD-V, guest ring 3 runs natively and ring 0 is *emulated*, too incompletely to boot
/// Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvmKind {
    /// VT-x or AMD-V: every guest runs.
    Hardware,
    /// The device opens, but the CPU has neither VT-x nor AMD-V: ring-3 payloads run, Linux does not.
    Software,
    /// There is no `/dev/kvm`, or it cannot be opened for a reason other than permissions.
    Absent,
    /// The device exists, but this user has no permission to open it.
    Denied,
}

impl KvmKind {
    /// Detects the kind of this host.
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

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            KvmKind::Hardware => "hardware",
            KvmKind::Software => "software",
            KvmKind::Absent => "absent",
            KvmKind::Denied => "denied",
        }
    }

    /// Whether a guest kernel (ring 0) can run.
    pub fn runs_linux(self) -> bool {
        self == KvmKind::Hardware
    }

    /// Whether a ring-3 payload can run.
    pub fn runs_payload(self) -> bool {
        matches!(self, KvmKind::Hardware | KvmKind::Software)
    }
}

/// Whether this host is emulated by QEMU's TCG, where AMD-V does not imply hardware virtualization. Detected
/// by the hypervisor leaf (CPUID 0x4000_0000, "TCGTCGTCGTCG").
pub fn is_emulated() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    let leaf = __cpuid(0x4000_0000);
    let signature = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes);
    __cpuid(1).ecx & HYPERVISOR != 0 && signature.as_flattened() == b"TCGTCGTCGTCG"
}

/// Whether the CPU is from AMD (or Hygon), so that guests make hypercalls with VMMCALL. With VMCALL, KVM
/// would have to patch the guest's code.
pub fn is_amd() -> bool {
    let leaf = __cpuid(0);
    let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
    [b"AuthenticAMD", b"HygonGenuine"].iter().any(|name| vendor.as_flattened() == *name)
}

/// Whether the CPU has VT-x or AMD-V.
pub fn has_virtualization() -> bool {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    ["vmx", "svm"].iter().any(|name| flag(&cpuinfo, Some(cpuid), name) == Some(true))
}

/// Returns the CPUID result for a leaf, subleaf 0, on this CPU or on a mock CPU in tests.
pub type Cpuid = fn(u32) -> CpuidResult;

/// Executes CPUID on this CPU.
pub fn cpuid(leaf: u32) -> CpuidResult {
    __cpuid(leaf)
}

/// Whether this text of `/proc/cpuinfo` has a `flags` line.
pub fn has_flags(cpuinfo: &str) -> bool {
    flags(cpuinfo).is_some()
}

fn flags(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    line.split_once(':').map(|(_, flags)| flags)
}

/// Whether the first `flags` line of this text of `/proc/cpuinfo` contains a flag. Falls back to CPUID if
/// there is no such line, as in some containers (lxcfs). None if unknown.
pub fn flag(cpuinfo: &str, cpuid: Option<Cpuid>, name: &str) -> Option<bool> {
    match flags(cpuinfo) {
        Some(flags) => Some(flags.split_whitespace().any(|word| word == name)),
        None => cpuid.and_then(|cpuid| cpuid_flag(cpuid, name)),
    }
}

/// Checks the CPUID bit from which Linux derives a flag (Intel SDM volume 2, CPUID; AMD APM volume 3,
/// appendix E). None for flags that are not listed here. The invariant-TSC bit implies two flags.
fn cpuid_flag(cpuid: Cpuid, name: &str) -> Option<bool> {
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
    fn classifies_kvm_kinds() {
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
        // Beyond the last leaf a CPU may return anything.
        CpuidResult { eax, ebx: 0, ecx, edx: u32::MAX }
    }

    /// Regression (G05 of tests/HISTORY.md): without cpuinfo, no CPU was found to have VT-x or AMD-V.
    #[test]
    fn flags_come_from_cpuinfo_or_else_cpuid() {
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
