//! What this host can do: facts read from it, and what follows from them.
//!
//! Facts are read through [`Files`], so that every parser runs on made-up hosts too. A fact that
//! the host does not tell is `None` and shown as unknown, never guessed.

pub mod advice;
pub mod cpu;
pub mod files;
pub mod kvm;
pub mod system;
pub mod text;
pub mod tools;

use serde::Serialize;

use crate::{kvm::KvmKind, units::CpuList};
use files::Files;

/// Everything read from the host.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Its KVM.
    pub kvm: kvm::KvmFacts,
    /// Its CPUs.
    pub cpu: cpu::CpuFacts,
    /// Its kernel and what is above it.
    pub system: system::SystemFacts,
    /// Programs found.
    pub tools: Vec<tools::Tool>,
    /// Things of ours in the cache.
    pub artifacts: Vec<tools::Artifact>,
}

impl Facts {
    /// Reads this host.
    pub fn collect(kind: KvmKind) -> Self {
        let files = Files::host();
        Self {
            kvm: kvm::KvmFacts::read(&files, kind),
            cpu: cpu::CpuFacts::read(&files, &crate::kvm::signal::allowed_cpus()),
            system: system::SystemFacts::read(&files),
            tools: tools::find_tools(),
            artifacts: tools::find_artifacts(),
        }
    }
}

/// Where one kind of guest runs when nothing else is asked for.
#[derive(Debug, Clone, Serialize)]
pub struct GuestRuns {
    /// `linux` or `payload`.
    pub guest: &'static str,
    /// `direct` or `emulated`.
    pub host: &'static str,
    /// Why there.
    pub why: &'static str,
    /// What is missing for it; empty when it can run now.
    pub missing: Vec<String>,
}

/// Facts, and what follows from them.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// As read.
    #[serde(flatten)]
    pub facts: Facts,
    /// Where guests run.
    pub guests: Vec<GuestRuns>,
    /// What to do next, the most useful first.
    pub next: Vec<String>,
}

impl Report {
    /// Can any guest run?
    pub fn anything_runs(&self) -> bool {
        self.guests.iter().any(|guest| guest.missing.is_empty())
    }
}

/// CPUs as `0,2-5`.
fn cpu_list(cpus: &[usize]) -> String {
    let text = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    text.parse().map_or(text, |list: CpuList| list.to_string())
}
