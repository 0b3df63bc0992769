//! The facts about the host that figures depend on, as a store keeps them.

use std::collections::{BTreeMap, BTreeSet};

use base::plural::count;
use serde::{Deserialize, Serialize};

/// The host at one moment. Facts that are not known are empty or None.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// The node's name, if the session measured a part of a run.
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
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's preemption model, for example `PREEMPT_DYNAMIC`.
    pub preemption: Option<String>,
    /// The hypervisor that this host runs under, by the name it reports.
    pub hypervisor: Option<String>,
    /// What confined the machines, in words: none, and version 0, for what the kernel lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confinement: Option<String>,
    /// CPUs this process may use.
    pub cpus_allowed: String,
    /// CPUs' worth of time that the control groups of this process allow it, where they do not allow all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<f64>,
    /// Is SMT active?
    pub smt: Option<bool>,
    /// The frequency governors of the chosen CPUs, each once.
    pub governors: BTreeSet<String>,
    /// How long KVM polls for a wakeup before a halted vCPU sleeps, in nanoseconds.
    pub halt_poll_ns: Option<u64>,
    /// Pause-loop exiting parameters of KVM's vendor module, by its names: `ple_gap`, `ple_window` and how that changes, or
    /// `pause_filter_count` and its like.
    pub pause_loop: BTreeMap<String, u64>,
    /// Other switches of that module, by its names: how interrupts reach guests (`enable_apicv`, `avic`, `enable_ipiv`),
    /// nested paging, the preemption timer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kvm_switches: BTreeMap<String, bool>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Current clock source.
    pub clocksource: Option<String>,
    /// What an increment of a workload's `critical` and `think` takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment: Option<IncrementFacts>,
    /// Total memory, in bytes.
    pub memory: Option<u64>,
    /// Load average over 1, 5 and 15 minutes, as the kernel prints them.
    pub load_average: Vec<f64>,
    /// Share of the chosen CPUs' time that was not idle just before, including steal: load that the
    /// vCPUs have to share the CPUs with.
    pub busy: Option<f64>,
    /// Share of the time stolen by the hypervisor above.
    pub steal: Option<f64>,
    /// This program's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<FileFacts>,
    /// The guests' kernels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<FileFacts>,
}

impl HostFacts {
    /// CPU, KVM and kernel in a line.
    pub fn in_words(&self) -> String {
        let known = |fact: &str, unknown: &str| {
            if fact.trim().is_empty() { unknown.to_owned() } else { fact.to_owned() }
        };
        let Self { cpu, kvm, kernel, .. } = self;
        let [cpu, kvm] = [known(cpu, "unknown CPU"), known(kvm, "unknown")];
        format!("{cpu}, {kvm} KVM, Linux {}", known(kernel, "of an unknown version"))
    }

    /// A note if a CPU quota allows less time than a run on `cpus` CPUs takes.
    pub fn quota_concern(&self, cpus: usize) -> Option<String> {
        let quota = self.cpu_quota.filter(|quota| *quota < cpus as f64)?;
        Some(format!(
            "a CPU quota allows {quota:.2} of the {} of the run: vCPUs are stopped in between, and the figures are of the \
             quota",
            count(cpus, "CPU")
        ))
    }
}

/// What one increment of a payload's work takes on a host: the unit of `critical` and `think`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct IncrementFacts {
    /// Picoseconds: the median of short batches with the sections and pauses of the default workload.
    pub picos: u64,
    /// The 99th percentile of the batches, by their median.
    pub p99: f64,
    /// An increment of two lines in turn, by one of a single line in the next batch, the median: more than one where the
    /// CPU predicts by the instruction's address what a load reads. None: not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub two_lines: Option<f64>,
}

impl IncrementFacts {
    /// The largest [`Self::p99`] and [`Self::two_lines`] of a unit that is one.
    pub const STEADY: f64 = 1.1;

    /// Takes an increment the same time in 99 of 100 batches, and whatever it adds to?
    pub fn is_steady(&self) -> bool {
        self.p99 <= Self::STEADY && self.two_lines.is_none_or(|times| times <= Self::STEADY)
    }
}

/// Identity of a file that figures depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Where the file was when it was read.
    pub path: String,
    /// The first 16 digits of its SHA-256.
    pub sha256: String,
    /// Version, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression (G05 of tests/HISTORY.md): the line of a host without cpuinfo began with blanks.
    #[test]
    fn facts_that_are_unknown_are_called_that() {
        let mut facts = HostFacts { kvm: "software".into(), ..HostFacts::default() };
        let unknown = "unknown CPU, software KVM, Linux of an unknown version";
        assert_eq!(facts.in_words(), unknown);
        (facts.cpu, facts.kernel) = ("AMD EPYC".into(), "6.1".into());
        assert_eq!(facts.in_words(), "AMD EPYC, software KVM, Linux 6.1");
    }

    #[test]
    fn a_quota_below_the_cpus_of_a_run_is_a_concern() {
        let facts = |cpu_quota| HostFacts { cpu_quota, ..HostFacts::default() };
        assert_eq!((facts(None).quota_concern(2), facts(Some(2.0)).quota_concern(2)), (None, None));
        let concern = facts(Some(0.1)).quota_concern(2).unwrap();
        assert!(
            concern.starts_with("a CPU quota allows 0.10 of the 2 CPUs of the run: "),
            "{concern}"
        );
    }
}
