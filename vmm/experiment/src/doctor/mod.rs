//! Facts about this host, and conclusions about what it supports.

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

use crate::prepare::driver::load_observer;
use files::HostFiles;
use kvm::KvmKind;
use os::cpu_quota::CpuQuota;
use study::host_facts::IncrementFacts;

/// Facts read from the host.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// The host's KVM.
    pub kvm: virtualization::KvmFacts,
    /// The host's CPUs.
    pub cpu: cpu::CpuFacts,
    /// CPU quota of this process's control groups, in CPUs; None without a quota.
    pub cpu_quota: Option<f64>,
    /// Time of an increment of the payload's work.
    pub increment: IncrementFacts,
    /// The host's kernel, and the hypervisor below it.
    pub system: system::SystemFacts,
    /// Confinement of the threads of VMs.
    pub confinement: confinement::ConfinementFacts,
    /// Support for BPF schedulers.
    pub sched_ext: sched_ext::SchedExtFacts,
    /// The reason why the host's scheduler cannot be observed; None if an observer could be loaded.
    pub unobserved: Option<String>,
    /// The reason why directed yields cannot be observed, if the scheduler can.
    pub no_yields: Option<String>,
    /// Programs that pvticket uses, found or not.
    pub tools: Vec<tools::Tool>,
    /// The directory for files that `make` builds or fetches.
    pub cache: tools::CacheFacts,
    /// Files in the cache, built or fetched by `make`.
    pub artifacts: Vec<tools::Artifact>,
}

impl Facts {
    /// Reads this host.
    pub fn collect(kind: KvmKind) -> Self {
        let files = HostFiles::host();
        let observer = load_observer();
        Self {
            kvm: virtualization::KvmFacts::read(&files, kind),
            cpu: cpu::CpuFacts::read(&files, &kvm::signal::allowed_cpus()),
            cpu_quota: CpuQuota::current().map(|quota| quota.0),
            increment: increment::measure(),
            system: system::SystemFacts::read(&files),
            confinement: confinement::ConfinementFacts::read(),
            sched_ext: sched_ext::SchedExtFacts::read(&files),
            unobserved: observer.as_ref().err().cloned(),
            no_yields: observer.ok().and_then(|it| it.no_yields().map(Into::into)),
            tools: tools::find_tools(),
            cache: tools::find_cache(),
            artifacts: tools::find_artifacts(),
        }
    }
}

/// The host of one kind of guest with `--host auto`.
#[derive(Debug, Clone, Serialize)]
pub struct GuestHost {
    /// `linux` or `payload`.
    pub guest: &'static str,
    /// `direct` or `emulated`.
    pub host: &'static str,
    /// The reason for this host.
    pub why: &'static str,
    /// Missing requirements; empty if the guest can run now.
    pub missing: Vec<String>,
}

/// Facts and conclusions.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorReport {
    /// The facts as read.
    #[serde(flatten)]
    pub facts: Facts,
    /// The host of each kind of guest.
    pub guests: Vec<GuestHost>,
    /// The next steps, most useful first.
    pub next: Vec<String>,
}

impl DoctorReport {
    /// Whether any guest can run.
    pub fn can_run_any(&self) -> bool {
        self.guests.iter().any(|guest| guest.missing.is_empty())
    }
}
