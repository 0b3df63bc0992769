//! Facts about the host that figures depend on, as recorded in a store.

use std::collections::{BTreeMap, BTreeSet};

use base::plural::count;
use serde::{Deserialize, Serialize};

/// The host at one moment. Unknown facts are empty or None.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Name of the node, if the session measured a part of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Model name of the first CPU.
    pub cpu: String,
    /// Revision of the CPU's microcode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
    /// Number of online CPUs.
    pub cpu_count: Option<usize>,
    /// `hardware`, `emulated` (a genuine KVM on a CPU whose AMD-V QEMU emulates), `software`,
    /// `absent` or `denied`.
    pub kvm: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The kernel's preemption model, for example `PREEMPT_DYNAMIC`.
    pub preemption: Option<String>,
    /// The hypervisor under which this host runs, by the name it reports.
    pub hypervisor: Option<String>,
    /// Confinement of the VMs in words; `seccomp none` and `Landlock 0`: not supported by the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confinement: Option<String>,
    /// CPUs that this process may use, for example `0-3`.
    pub cpus_allowed: String,
    /// CPU quota of this process's control groups, in CPUs, if limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<f64>,
    /// Whether SMT is active.
    pub smt: Option<bool>,
    /// Frequency governors of the chosen CPUs, without duplicates.
    pub governors: BTreeSet<String>,
    /// Maximum nanoseconds for which KVM polls for a wakeup before a halted vCPU blocks.
    pub halt_poll_ns: Option<u64>,
    /// Pause-loop exiting parameters of KVM's vendor module, by the module's names: `ple_gap`, `ple_window`
    /// and the parameters of its changes, or `pause_filter_count` and the like.
    pub pause_loop: BTreeMap<String, u64>,
    /// Other switches of that module, by the module's names: delivery of interrupts to guests
    /// (`enable_apicv`, `avic`, `enable_ipiv`), nested paging, the preemption timer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kvm_switches: BTreeMap<String, bool>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Current clock source.
    pub clocksource: Option<String>,
    /// Duration of an increment of a workload's `critical` and `think`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment: Option<IncrementFacts>,
    /// Total memory, in bytes.
    pub memory: Option<u64>,
    /// Load average over 1, 5 and 15 minutes, as printed by the kernel.
    pub load_average: Vec<f64>,
    /// Non-idle share of the chosen CPUs' time, including steal, just before the session: load that competes
    /// with the vCPUs.
    pub busy: Option<f64>,
    /// Share of the time that the underlying hypervisor stole.
    pub steal: Option<f64>,
    /// Executable file of this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<FileFacts>,
    /// Kernels of the guests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<FileFacts>,
    /// Kernels of the emulated hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_kernels: Vec<FileFacts>,
}

impl HostFacts {
    /// Returns CPU, KVM and kernel in one line.
    pub fn summary(&self) -> String {
        let known = |fact: &str, unknown: &str| {
            if fact.trim().is_empty() { unknown.to_owned() } else { fact.to_owned() }
        };
        let Self { cpu, kvm, kernel, .. } = self;
        let [cpu, kvm] = [known(cpu, "unknown CPU"), known(kvm, "unknown")];
        format!("{cpu}, {kvm} KVM, Linux {}", known(kernel, "of an unknown version"))
    }

    /// Returns a note if a CPU quota allows less time than a run on `cpus` CPUs takes.
    pub fn quota_warning(&self, cpus: usize) -> Option<String> {
        let quota = self.cpu_quota.filter(|quota| *quota < cpus as f64)?;
        Some(format!(
            "a CPU quota allows {quota:.2} of the {} of the run: vCPUs are throttled, and the figures measure the \
             quota",
            count(cpus, "CPU")
        ))
    }
}

/// Duration of one increment of a payload's work on a host: the unit of `critical` and `think`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct IncrementFacts {
    /// Picoseconds: the median over short batches with the sections and pauses of the default workload.
    pub picos: u64,
    /// The 99th percentile of the batches, relative to their median.
    pub p99: f64,
    /// Median duration of an increment that alternates between two cache lines, relative to one line in the
    /// next batch: above one if the CPU predicts loaded values by instruction address. None: not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub two_lines: Option<f64>,
}

impl IncrementFacts {
    /// Maximum of [`Self::p99`] and [`Self::two_lines`] for a steady unit.
    pub const STEADY: f64 = 1.1;

    /// Whether times differ by at most a factor of [`Self::STEADY`] in 99 of 100 batches, and between one line and two.
    pub fn is_steady(&self) -> bool {
        self.p99 <= Self::STEADY && self.two_lines.is_none_or(|times| times <= Self::STEADY)
    }
}

/// Identity of a file that figures depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Name of the kernel in points; empty for other files, and in stores of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Path at the time of reading.
    pub path: String,
    /// First 16 hex digits of its SHA-256.
    pub sha256: String,
    /// Version, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A kernel's preemption model, by its banner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression (G05 of tests/HISTORY.md): the line of a host without cpuinfo began with blanks.
    #[test]
    fn unknown_facts_are_named() {
        let mut facts = HostFacts { kvm: "software".into(), ..HostFacts::default() };
        let unknown = "unknown CPU, software KVM, Linux of an unknown version";
        assert_eq!(facts.summary(), unknown);
        (facts.cpu, facts.kernel) = ("AMD EPYC".into(), "6.1".into());
        assert_eq!(facts.summary(), "AMD EPYC, software KVM, Linux 6.1");
    }

    #[test]
    fn warns_about_quotas_below_the_cpus_of_a_run() {
        let facts = |cpu_quota| HostFacts { cpu_quota, ..HostFacts::default() };
        assert_eq!((facts(None).quota_warning(2), facts(Some(2.0)).quota_warning(2)), (None, None));
        let concern = facts(Some(0.1)).quota_warning(2).unwrap();
        assert!(
            concern.starts_with("a CPU quota allows 0.10 of the 2 CPUs of the run: "),
            "{concern}"
        );
    }
}
