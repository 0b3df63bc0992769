//! What is compared: a lock, under a policy.

use std::fmt;

use crate::{sched::PolicySpec, vm::PvBackend};

/// One of those compared at every level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// Who schedules the vCPUs.
    pub policy: PolicySpec,
    /// Who serves the lock's waiters; `off` is the native lock.
    pub backend: PvBackend,
}

impl Contender {
    /// The native lock under the same policy: what a PV lock is compared with.
    pub fn is_baseline_of(&self, other: &Contender) -> bool {
        self.policy == other.policy
            && self.backend == PvBackend::Off
            && other.backend != PvBackend::Off
    }

    /// Every backend under every policy, policy by policy.
    pub fn all(policies: &[PolicySpec], backends: &[PvBackend]) -> Vec<Self> {
        let under = |policy: &PolicySpec| {
            let policy = policy.clone();
            backends.iter().map(move |backend| Self { policy: policy.clone(), backend: *backend })
        };
        policies.iter().flat_map(under).collect()
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy.is_host() {
            true => write!(f, "{}", self.backend),
            false => write!(f, "{} under {}", self.backend, self.policy),
        }
    }
}
