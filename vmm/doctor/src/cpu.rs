//! The CPUs: model, relevant flags, and how many may be used.

use std::{
    arch::x86_64::__cpuid,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;

use super::{
    files::HostFiles,
    topology::{Choice, Topology, Wanted},
};
use kvm::{
    cpus::{kernels, spared},
    host::has_flag,
};

/// Flags of `/proc/cpuinfo` that matter here.
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
    /// Relevant flags, and whether the CPU has them.
    pub flags: BTreeMap<&'static str, bool>,
    /// CPUs that are online, without the spared ones.
    pub online: usize,
    /// CPUs at the low end that are kept free of guests and not counted: one in the emulated host.
    pub spared: usize,
    /// CPUs that this process may use.
    pub allowed: Vec<usize>,
    /// Do hardware threads share cores?
    pub smt: Option<bool>,
    /// Of the CPUs that may be used, one per core.
    pub one_per_core: Vec<usize>,
    /// The CPUs that commands use by default; None: this process may use none.
    pub by_default: Option<Choice>,
    /// Parts of the topology that the host does not describe.
    pub unknown: Vec<&'static str>,
    /// The frequency governors of the CPUs that may be used, without repeats.
    pub governors: BTreeSet<String>,
    /// The signature of the hypervisor that this host runs under.
    pub hypervisor: Option<String>,
}

impl CpuFacts {
    /// Reads the host's CPUs, of which this process may use `allowed`.
    pub fn read(files: &HostFiles, allowed: &[usize]) -> Self {
        let cpuinfo = files.text("/proc/cpuinfo").unwrap_or_default();
        let flags: BTreeMap<_, _> = FLAGS.map(|flag| (flag, has_flag(&cpuinfo, flag))).into();
        let hypervisor = flags["hypervisor"].then(hypervisor_name);
        let topology = Topology::read(files, allowed);
        Self {
            vendor: field(&cpuinfo, "vendor_id"),
            model: field(&cpuinfo, "model name"),
            microcode: field(&cpuinfo, "microcode"),
            online: online(&cpuinfo).saturating_sub(spared()),
            spared: spared(),
            smt: files.flag("/sys/devices/system/cpu/smt/active"),
            one_per_core: topology.one_per_core(),
            by_default: topology.choose(Wanted::Default).ok(),
            unknown: topology.unknown,
            governors: governors(files, allowed),
            allowed: allowed.into(),
            flags,
            hypervisor,
        }
    }
}

fn field(cpuinfo: &str, name: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn online(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|line| line.starts_with("processor")).count()
}

fn governors(files: &HostFiles, cpus: &[usize]) -> BTreeSet<String> {
    let path = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    cpus.iter().filter_map(|cpu| files.text(&path(kernels(*cpu)))).collect()
}

/// The hypervisor's signature: 12 bytes of CPUID leaf 0x4000_0000 (EBX, ECX, EDX), by convention.
fn hypervisor_name() -> String {
    let leaf = __cpuid(0x4000_0000);
    let bytes: Vec<u8> =
        [leaf.ebx, leaf.ecx, leaf.edx].iter().flat_map(|register| register.to_le_bytes()).collect();
    let name = String::from_utf8_lossy(&bytes);
    name.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::made_up;

    const TWO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A CPU @ 2 GHz\n\
        flags\t\t: fpu vmx x2apic\n\nprocessor\t: 1\nvendor_id\t: GenuineIntel\n";

    #[test]
    fn cpuinfo_is_read() {
        let files = made_up::host("cpu", &[("proc/cpuinfo", TWO)]);
        let cpu = CpuFacts::read(&files, &[0, 1]);
        assert_eq!(cpu.vendor.as_deref(), Some("GenuineIntel"));
        assert_eq!(cpu.model.as_deref(), Some("A CPU @ 2 GHz"));
        assert_eq!(cpu.online, 2);
        assert!(cpu.flags["vmx"] && cpu.flags["x2apic"]);
        assert!(!cpu.flags["svm"] && !cpu.flags["hypervisor"]);
        assert_eq!((cpu.smt, cpu.hypervisor), (None, None));
        assert_eq!(cpu.one_per_core, [0, 1]);
    }
}
