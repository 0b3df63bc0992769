//! What this host supports: facts read from it, and the conclusions.
//!
//! Facts are read through [`HostFiles`], so that every parser can be tested on mocked hosts. A fact
//! that the host does not provide is `None` and shown as unknown, never guessed.

pub mod advice;
pub mod brief;
pub mod calls;
pub mod confinement;
pub mod cpu;
pub mod files;
pub mod increment;
pub mod sched_ext;
pub mod system;
pub mod text;
pub mod tools;
pub mod topology;
#[cfg(test)]
mod unreadable_tests;
pub mod virtualization;

use serde::Serialize;

use files::HostFiles;
use kvm::KvmKind;
use os::cpu_quota::CpuQuota;
use study::host_facts::IncrementFacts;

/// Everything read from the host.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// The host's KVM.
    pub kvm: virtualization::KvmFacts,
    /// The host's CPUs.
    pub cpu: cpu::CpuFacts,
    /// CPUs' worth of time that the control groups of this process allow it, where they do not allow all.
    pub cpu_quota: Option<f64>,
    /// What an increment of the payload's work takes.
    pub increment: IncrementFacts,
    /// The host's kernel, and the hypervisor above it.
    pub system: system::SystemFacts,
    /// What confines the threads of machines.
    pub confinement: confinement::ConfinementFacts,
    /// Schedulers in BPF.
    pub sched_ext: sched_ext::SchedExtFacts,
    /// Programs that are used, found or not.
    pub tools: Vec<tools::Tool>,
    /// The directory of what `make` builds or fetches.
    pub cache: tools::CacheFacts,
    /// Files in the cache, built or fetched by `make`.
    pub artifacts: Vec<tools::Artifact>,
}

impl Facts {
    /// Reads this host.
    pub fn collect(kind: KvmKind) -> Self {
        let files = HostFiles::host();
        Self {
            kvm: virtualization::KvmFacts::read(&files, kind),
            cpu: cpu::CpuFacts::read(&files, &kvm::signal::allowed_cpus()),
            cpu_quota: CpuQuota::here().map(|quota| quota.0),
            increment: increment::measure(),
            system: system::SystemFacts::read(&files),
            confinement: confinement::ConfinementFacts::read(),
            sched_ext: sched_ext::SchedExtFacts::read(&files),
            tools: tools::find_tools(),
            cache: tools::find_cache(),
            artifacts: tools::find_artifacts(),
        }
    }
}

/// Where one kind of guest runs with `--host auto`.
#[derive(Debug, Clone, Serialize)]
pub struct GuestRuns {
    /// `linux` or `payload`.
    pub guest: &'static str,
    /// `direct` or `emulated`.
    pub host: &'static str,
    /// The reason for that host, or for there being none.
    pub why: &'static str,
    /// What is missing for it; empty if it can run now.
    pub missing: Vec<String>,
}

/// Facts and conclusions.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorReport {
    /// The facts as read.
    #[serde(flatten)]
    pub facts: Facts,
    /// Where each kind of guest runs.
    pub guests: Vec<GuestRuns>,
    /// The next steps, most useful first.
    pub next: Vec<String>,
}

impl DoctorReport {
    /// Can any guest run?
    pub fn anything_runs(&self) -> bool {
        self.guests.iter().any(|guest| guest.missing.is_empty())
    }
}
