//! The CPUs: model, relevant flags, and how many may be used.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{
    files::HostFiles,
    topology::{Choice, CpuRequest, Topology},
};
use base::units::CpuList;
use kvm::{
    cpus::{reserved, to_kernel},
    host::{Cpuid, flag, has_flags},
};

/// CPU flags that matter to guests and clocks.
const FLAGS: [&str; 7] =
    ["vmx", "svm", "x2apic", "tsc_deadline_timer", "constant_tsc", "nonstop_tsc", "hypervisor"];

/// Facts about the CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuFacts {
    /// For example `AuthenticAMD`.
    pub vendor: Option<String>,
    /// For example `AMD EPYC`.
    pub model: Option<String>,
    /// The microcode's revision.
    pub microcode: Option<String>,
    /// Relevant flags, and whether the CPU has them. Unknown flags are left out.
    pub flags: BTreeMap<&'static str, bool>,
    /// Whether the flags are CPUID's, not `/proc/cpuinfo`'s. Firmware or the kernel may have disabled some.
    pub flags_of_cpuid: bool,
    /// Number of online CPUs, without spared CPUs.
    pub online: Option<usize>,
    /// Number of CPUs, from the first on, that are kept free of guests and not counted: one in the emulated host.
    pub spared: usize,
    /// CPUs that this process may use.
    pub allowed: Vec<usize>,
    /// Whether hardware threads share cores.
    pub smt: Option<bool>,
    /// One usable CPU per core.
    pub one_per_core: Vec<usize>,
    /// CPUs that commands use by default; None if this process may use no CPU.
    pub by_default: Option<Choice>,
    /// Parts of the topology that the host does not describe.
    pub unknown: Vec<&'static str>,
    /// Frequency governors of the usable CPUs, without repeats.
    pub governors: BTreeSet<String>,
    /// Signature of the hypervisor that this host runs under.
    pub hypervisor: Option<String>,
}

impl CpuFacts {
    /// Reads the host's CPUs, of which this process may use `allowed`.
    pub fn read(files: &HostFiles, allowed: &[usize]) -> Self {
        let cpuinfo = files.text("/proc/cpuinfo").unwrap_or_default();
        let flags =
            FLAGS.iter().filter_map(|name| Some((*name, flag(&cpuinfo, files.cpuid, name)?)));
        let flags: BTreeMap<_, _> = flags.collect();
        let topology = Topology::read(files, allowed);
        let is_vm = flags.get("hypervisor") == Some(&true);
        let hypervisor =
            files.cpuid.filter(|_| is_vm).and_then(|cpuid| signature(cpuid, HYPERVISOR));
        Self {
            vendor: field(&cpuinfo, "vendor_id").or_else(|| signature(files.cpuid?, VENDOR)),
            model: field(&cpuinfo, "model name").or_else(|| brand(files.cpuid?)),
            microcode: field(&cpuinfo, "microcode"),
            online: online_in_cpuinfo(&cpuinfo)
                .or_else(|| online_in_sysfs(files))
                .map(|count| count.saturating_sub(reserved())),
            spared: reserved(),
            smt: files.flag("/sys/devices/system/cpu/smt/active"),
            one_per_core: topology.one_per_core(),
            by_default: topology.choose(CpuRequest::Default).ok(),
            unknown: topology.unknown,
            governors: governors(files, allowed),
            allowed: allowed.into(),
            flags_of_cpuid: !flags.is_empty() && !has_flags(&cpuinfo),
            flags,
            hypervisor,
        }
    }
}

fn field(cpuinfo: &str, name: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once(':')?;
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn online_in_cpuinfo(cpuinfo: &str) -> Option<usize> {
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    (count > 0).then_some(count)
}

/// Counts the CPUs in their list in `/sys`.
fn online_in_sysfs(files: &HostFiles) -> Option<usize> {
    let list: CpuList = files.text("/sys/devices/system/cpu/online")?.parse().ok()?;
    Some(list.cpus().len()).filter(|count| *count > 0)
}

fn governors(files: &HostFiles, cpus: &[usize]) -> BTreeSet<String> {
    let path = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    cpus.iter().filter_map(|cpu| files.word(&path(to_kernel(*cpu)))).collect()
}

/// Leaves of the vendor's name and, by convention, of the hypervisor's.
const VENDOR: u32 = 0;
const HYPERVISOR: u32 = 0x4000_0000;

/// Returns the twelve bytes of a leaf with a name. The vendor's registers are in a different order.
fn signature(cpuid: Cpuid, leaf: u32) -> Option<String> {
    let answer = cpuid(leaf);
    let registers = match leaf {
        VENDOR => [answer.ebx, answer.edx, answer.ecx],
        _ => [answer.ebx, answer.ecx, answer.edx],
    };
    register_text(&registers)
}

/// Returns the brand string: leaves 0x8000_0002 to 0x8000_0004.
fn brand(cpuid: Cpuid) -> Option<String> {
    const LEAVES: [u32; 3] = [0x8000_0002, 0x8000_0003, 0x8000_0004];
    let has_brand = cpuid(0x8000_0000).eax >= LEAVES[2];
    let registers = LEAVES.map(cpuid).map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
    has_brand.then(|| register_text(registers.as_flattened())).flatten()
}

/// Returns registers as text; None if they contain no text.
fn register_text(registers: &[u32]) -> Option<String> {
    let bytes = registers.iter().flat_map(|register| register.to_le_bytes());
    let text: String =
        bytes.map(char::from).filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::mock;

    const TWO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A CPU @ 2 GHz\n\
        flags\t\t: fpu vmx x2apic\n\nprocessor\t: 1\nvendor_id\t: GenuineIntel\n";

    #[test]
    fn cpuinfo_is_read() {
        let files = mock::host("cpu", &[("proc/cpuinfo", TWO)]);
        let cpu = CpuFacts::read(&files, &[0, 1]);
        assert_eq!(cpu.vendor.as_deref(), Some("GenuineIntel"));
        assert_eq!(cpu.model.as_deref(), Some("A CPU @ 2 GHz"));
        assert_eq!(cpu.online, Some(2));
        assert!(cpu.flags["vmx"] && cpu.flags["x2apic"]);
        assert!(!cpu.flags["svm"] && !cpu.flags["hypervisor"]);
        assert_eq!((cpu.smt, cpu.hypervisor), (None, None));
        assert_eq!(cpu.one_per_core, [0, 1]);
    }

    /// Leaves of an Intel CPU with VT-x, under a hypervisor.
    fn intel(leaf: u32) -> std::arch::x86_64::CpuidResult {
        let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
        let [eax, ebx, ecx, edx] = match leaf {
            0 => [0x16, word(b"Genu"), word(b"ntel"), word(b"ineI")],
            1 => [0, 0, 1 << 5 | 1 << 31, 0],
            HYPERVISOR => [0, word(b"KVMK"), word(b"VMKV"), word(b"M\0\0\0")],
            0x8000_0000 => [0x8000_0008, 0, 0, 0],
            0x8000_0002 => [word(b"A CP"), word(b"U of"), word(b" Int"), word(b"el  ")],
            _ => [0; 4],
        };
        std::arch::x86_64::CpuidResult { eax, ebx, ecx, edx }
    }

    /// Regression (G05 of tests/HISTORY.md): without cpuinfo, a container had 0 CPUs, no model, VT-x or SVM.
    #[test]
    fn cpuid_replaces_missing_cpuinfo() {
        for (name, cpuinfo) in [("no-cpuinfo", None), ("empty-cpuinfo", Some("\n"))] {
            let mut contents = vec![("sys/devices/system/cpu/online", "0-2,5\n")];
            contents.extend(cpuinfo.map(|text| ("proc/cpuinfo", text)));
            let mut files = mock::host(name, &contents);
            files.cpuid = Some(intel);
            let cpu = CpuFacts::read(&files, &[0]);
            assert_eq!(cpu.vendor.as_deref(), Some("GenuineIntel"));
            assert_eq!(cpu.model.as_deref(), Some("A CPU of Intel"));
            assert_eq!(cpu.hypervisor.as_deref(), Some("KVMKVMKVM"));
            assert!(cpu.flags["vmx"] && !cpu.flags["svm"] && cpu.flags_of_cpuid);
            assert_eq!(cpu.online, Some(4));
        }
    }
}
