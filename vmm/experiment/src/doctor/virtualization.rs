//! The host's KVM, and its settings that influence measurements.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt};

use serde::Serialize;

use super::files::HostFiles;
use kvm::{
    KvmKind,
    caps::Capabilities,
    host::{DEV_KVM, flag},
};

/// A vendor's module and its parameters, by their names in `arch/x86/kvm/vmx/vmx.c` and `svm/svm.c`.
#[derive(Debug)]
struct Vendor {
    module: &'static str,
    /// CPU flag of the extension.
    flag: &'static str,
    /// Parameters of pause-loop exiting: cycles, PAUSEs (SVM's count) and factors. It is off if the first is 0.
    pause_loop: [&'static str; 5],
    /// Interrupt virtualization, and other switches that change the cost of exits.
    switches: &'static [&'static str],
    /// The switch that lets interrupts reach guests without an exit.
    apicv: &'static str,
}

const VENDORS: [Vendor; 2] = [
    Vendor {
        module: "kvm_intel",
        flag: "vmx",
        pause_loop: [
            "ple_gap",
            "ple_window",
            "ple_window_grow",
            "ple_window_shrink",
            "ple_window_max",
        ],
        switches: &[
            "enable_apicv",
            "enable_ipiv",
            "enable_device_posted_irqs",
            "ept",
            "vpid",
            "preemption_timer",
        ],
        apicv: "enable_apicv",
    },
    Vendor {
        module: "kvm_amd",
        flag: "svm",
        pause_loop: [
            "pause_filter_count",
            "pause_filter_thresh",
            "pause_filter_count_grow",
            "pause_filter_count_shrink",
            "pause_filter_count_max",
        ],
        // No `vpid` or `preemption_timer`: SVM always tags its TLB, and has no such timer.
        switches: &["avic", "enable_ipiv", "enable_device_posted_irqs", "npt"],
        apicv: "avic",
    },
];

/// Facts about KVM.
#[derive(Debug, Clone, Serialize)]
pub struct KvmFacts {
    /// `hardware`, `software`, `absent` or `denied`.
    pub kind: &'static str,
    #[serde(skip)]
    pub(super) detected: KvmKind,
    /// The vendor module: `kvm_intel`, `kvm_amd` or another.
    pub module: Option<String>,
    /// The group that may open `/dev/kvm`, if its mode allows one.
    pub group: Option<String>,
    /// Capabilities, if `/dev/kvm` can be opened.
    pub capabilities: Option<Capabilities>,
    /// Maximum time for which KVM polls before a halted vCPU blocks, in nanoseconds.
    pub halt_poll_ns: Option<u64>,
    /// Whether the CPU exits from a guest that spins in a PAUSE loop, so that KVM can run another vCPU.
    pub pause_loop_exiting: Option<bool>,
    /// The module's parameters of pause-loop exiting, by name.
    pub pause_loop: BTreeMap<String, u64>,
    /// Switches of the module, by its parameter names. Unknown switches are left out.
    pub switches: BTreeMap<String, bool>,
    /// Whether interrupts reach guests without an exit (APICv, AVIC).
    pub interrupt_virtualization: Option<bool>,
    /// Whether guests may use VT-x or AMD-V themselves.
    pub nested: Option<bool>,
}

impl KvmFacts {
    /// Reads this host's settings, and queries its KVM if it can be opened.
    pub fn read(files: &HostFiles, detected: KvmKind) -> Self {
        let module = vendor_module(files);
        let usable = detected.runs_payload();
        let vendor = VENDORS.iter().find(|vendor| Some(vendor.module) == module.as_deref());
        let path = |name: &str| {
            module.as_ref().map(|module| format!("/sys/module/{module}/parameters/{name}"))
        };
        let number = |name: &str| files.number(&path(name)?);
        let flag = |name: &str| files.flag(&path(name)?);
        let switches = vendor.map_or(&[][..], |vendor| vendor.switches);
        let switches: BTreeMap<String, bool> =
            switches.iter().filter_map(|name| Some(((*name).to_owned(), flag(name)?))).collect();
        Self {
            kind: detected.name(),
            detected,
            group: group(files),
            capabilities: usable.then(Capabilities::query).and_then(Result::ok),
            halt_poll_ns: files.number("/sys/module/kvm/parameters/halt_poll_ns"),
            pause_loop_exiting: vendor
                .and_then(|vendor| number(vendor.pause_loop[0]))
                .map(|value| value > 0),
            pause_loop: vendor
                .into_iter()
                .flat_map(|vendor| vendor.pause_loop)
                .filter_map(|name| Some((name.to_owned(), number(name)?)))
                .collect(),
            interrupt_virtualization: vendor.and_then(|vendor| switches.get(vendor.apicv).copied()),
            switches,
            nested: flag("nested"),
            module,
        }
    }
}

impl KvmFacts {
    /// Returns the module, the parameter and the window of pause-loop exits: cycles on Intel, PAUSEs on AMD.
    pub fn pause_window(&self) -> Option<(&str, &'static str, u64)> {
        let mut parameters = ["ple_window", "pause_filter_count"].into_iter();
        let (name, window) =
            parameters.find_map(|name| Some((name, *self.pause_loop.get(name)?)))?;
        Some((self.module.as_deref()?, name, window))
    }

    /// Whether the module's parameters are known.
    pub fn has_vendor(&self) -> bool {
        VENDORS.iter().any(|vendor| Some(vendor.module) == self.module.as_deref())
    }
}

/// Returns the vendor module in `/sys/module/kvm_*`. Built-in modules also appear there if they have parameters.
/// A kernel with both vendors' modules built in shows both, and the CPU decides.
fn vendor_module(files: &HostFiles) -> Option<String> {
    let names = files.names("/sys/module");
    let cpuinfo = files.text("/proc/cpuinfo").unwrap_or_default();
    let is_of_cpu = |name: &&String| {
        let vendor = VENDORS.iter().find(|vendor| vendor.module == name.as_str());
        vendor.is_some_and(|vendor| flag(&cpuinfo, files.cpuid, vendor.flag) == Some(true))
    };
    let modules: Vec<&String> = names.iter().filter(|name| name.starts_with("kvm_")).collect();
    let only = (modules.len() == 1).then(|| modules[0]);
    modules.iter().copied().find(is_of_cpu).or(only).cloned()
}

/// Returns the name of the group of `/dev/kvm`, if its mode lets the group read and write.
fn group(files: &HostFiles) -> Option<String> {
    const GROUP_READ_WRITE: u32 = 0o060;
    let metadata = fs::metadata(files.path(DEV_KVM)).ok()?;
    let allowed = metadata.mode() & GROUP_READ_WRITE == GROUP_READ_WRITE;
    allowed.then(|| name_of_group(&files.text("/etc/group")?, metadata.gid())).flatten()
}

fn name_of_group(groups: &str, gid: u32) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::mock;

    /// Intel's settings are covered by `unreadable_tests`.
    #[test]
    fn amd_settings_are_read() {
        let amd = [
            ("sys/module/kvm/parameters/halt_poll_ns", "200000"),
            ("sys/module/kvm_amd/parameters/pause_filter_count", "3000"),
            ("sys/module/kvm_amd/parameters/pause_filter_thresh", "128"),
            ("sys/module/kvm_amd/parameters/pause_filter_count_grow", "2"),
            ("sys/module/kvm_amd/parameters/pause_filter_count_shrink", "0"),
            ("sys/module/kvm_amd/parameters/pause_filter_count_max", "65535"),
            ("sys/module/kvm_amd/parameters/avic", "N"),
            ("sys/module/kvm_amd/parameters/enable_ipiv", "N"),
            ("sys/module/kvm_amd/parameters/npt", "1"),
            ("sys/module/kvm_amd/parameters/nested", "1"),
        ];
        let facts = KvmFacts::read(&mock::host("amd", &amd), KvmKind::Denied);
        assert_eq!(facts.kind, "denied");
        assert_eq!(facts.halt_poll_ns, Some(200_000));
        assert_eq!(facts.pause_loop_exiting, Some(true));
        assert_eq!((facts.pause_loop.len(), facts.pause_loop["pause_filter_count"]), (5, 3000));
        assert_eq!(facts.interrupt_virtualization, Some(false));
        let switches = [("avic", false), ("enable_ipiv", false), ("npt", true)];
        assert_eq!(facts.switches, switches.map(|(name, is_on)| (name.to_owned(), is_on)).into());
        assert_eq!(facts.nested, Some(true));

        let off = mock::host("no-ple", &[("sys/module/kvm_intel/parameters/ple_gap", "0")]);
        assert_eq!(KvmFacts::read(&off, KvmKind::Absent).pause_loop_exiting, Some(false));
    }

    /// A kernel with both modules built in has both directories. Regression: AMD's was used on an Intel CPU.
    #[test]
    fn module_matches_the_cpu_vendor() {
        let both = [
            ("sys/module/kvm_amd/parameters/avic", "N"),
            ("sys/module/kvm_intel/parameters/enable_apicv", "Y"),
        ];
        let module = |name, flags: &str| {
            let text = format!("processor\t: 0\nflags\t\t: {flags}\n");
            let files = [both[0], both[1], ("proc/cpuinfo", text.as_str())];
            KvmFacts::read(&mock::host(name, &files), KvmKind::Denied).module
        };
        assert_eq!(module("both-intel", "fpu vmx").as_deref(), Some("kvm_intel"));
        assert_eq!(module("both-amd", "fpu svm").as_deref(), Some("kvm_amd"));
        assert_eq!(module("both-neither", "fpu"), None);
        let mut unknown = mock::host("both-unknown", &both);
        assert_eq!(KvmFacts::read(&unknown, KvmKind::Denied).module, None);
        unknown.cpuid = Some(|leaf| {
            let (eax, ecx) = if leaf == 1 { (0, 1 << 5) } else { (1, 0) };
            std::arch::x86_64::CpuidResult { eax, ebx: 0, ecx, edx: 0 }
        });
        let facts = KvmFacts::read(&unknown, KvmKind::Denied);
        assert_eq!(facts.module.as_deref(), Some("kvm_intel"));
    }

    #[test]
    fn groups_have_names() {
        let groups = "root:x:0:\nkvm:x:104:me\n";
        assert_eq!(name_of_group(groups, 104).as_deref(), Some("kvm"));
        assert_eq!(name_of_group(groups, 5), None);
    }
}
