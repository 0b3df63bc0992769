//! What is compared: a lock, under a policy.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{guest::handoff::HandoffSpec, sched::PolicySpec, vm::PvBackend};

/// One of those compared at every level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// Who schedules the vCPUs.
    pub policy: PolicySpec,
    /// Who serves the lock's waiters; `off` is the native lock.
    pub backend: PvBackend,
    /// What a PV lock does to be handed over more cheaply.
    pub handoff: HandoffSpec,
}

impl Contender {
    /// What a PV lock is compared with, under the same policy: the native one, and one with other
    /// handoffs also the same lock without.
    pub fn is_baseline_of(&self, other: &Contender) -> bool {
        let is_native = self.backend == PvBackend::Off && other.backend != PvBackend::Off;
        let is_plain = self.backend == other.backend
            && self.handoff == HandoffSpec::NONE
            && other.handoff != HandoffSpec::NONE;
        self.policy == other.policy && (is_native || is_plain)
    }

    /// Every backend under every policy, policy by policy; those with waiters to serve with each
    /// kind of handoff.
    pub fn all(
        policies: &[PolicySpec],
        backends: &[PvBackend],
        handoffs: &[HandoffSpec],
    ) -> Vec<Self> {
        let mut all = Vec::new();
        for policy in policies {
            for backend in backends.iter().copied() {
                let plain = [HandoffSpec::NONE];
                let handoffs = if backend == PvBackend::Off { &plain } else { handoffs };
                all.extend(handoffs.iter().map(|handoff| Self {
                    policy: policy.clone(),
                    backend,
                    handoff: *handoff,
                }));
            }
        }
        all
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.backend)?;
        if self.handoff != HandoffSpec::NONE {
            write!(f, " with {}", self.handoff)?;
        }
        match self.policy.is_host() {
            true => Ok(()),
            false => write!(f, " under {}", self.policy),
        }
    }
}

/// As the fields of whatever it is flattened into.
impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("policy", &self.policy.to_string())?;
        map.serialize_entry("backend", self.backend.name())?;
        map.serialize_entry("handoff", &self.handoff)?;
        map.end()
    }
}
