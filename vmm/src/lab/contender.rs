//! What is compared: a lock, under a policy.

use std::fmt;

use locks::System;
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{guest::handoff::HandoffSpec, sched::PolicySpec, vm::PvBackend};

/// One of those compared at every level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// Who schedules the vCPUs.
    pub policy: PolicySpec,
    /// Which system of the lock library; None: the guest's own ticketlocks, native or PV.
    pub system: Option<System>,
    /// Who serves the waiters; `off`: nobody, they do not halt.
    pub backend: PvBackend,
    /// What a PV lock does to be handed over more cheaply.
    pub handoff: HandoffSpec,
}

impl Contender {
    /// What a PV lock is compared with, under the same policy: the native one, and one with other
    /// handoffs also the same lock without.
    pub fn is_baseline_of(&self, other: &Contender) -> bool {
        let is_native = self.backend == PvBackend::Off && other.backend != PvBackend::Off;
        let is_plain = self.system == other.system
            && self.backend == other.backend
            && self.handoff == HandoffSpec::NONE
            && other.handoff != HandoffSpec::NONE;
        let is_first = match (self.system, other.system) {
            (None, None) => is_native,
            (Some(mine), Some(its)) => mine == its.baseline() && mine != its,
            _ => false,
        };
        self.policy == other.policy && (is_first || is_plain)
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
                    system: None,
                    backend,
                    handoff: *handoff,
                }));
            }
        }
        all
    }

    /// Every system under every policy: where somebody `halts` with each of the `backends` but
    /// `off`, and the PV ticketlock with each kind of handoff.
    pub fn of_systems(
        policies: &[PolicySpec],
        systems: &[System],
        halts: impl Fn(System) -> bool,
        backends: &[PvBackend],
        handoffs: &[HandoffSpec],
    ) -> Vec<Self> {
        let mut all = Vec::new();
        for policy in policies {
            for system in systems.iter().copied() {
                let halts = halts(system);
                let backends = backends.iter().filter(|its| (**its != PvBackend::Off) == halts);
                let plain = [HandoffSpec::NONE];
                let handoffs = if system == System::PvTicket { handoffs } else { &plain };
                for backend in backends.copied() {
                    all.extend(handoffs.iter().map(|handoff| Self {
                        policy: policy.clone(),
                        system: Some(system),
                        backend,
                        handoff: *handoff,
                    }));
                }
            }
        }
        all
    }

    /// What contends, as its users call it.
    pub fn lock(&self) -> String {
        let backend = match self.backend {
            PvBackend::Off | PvBackend::Vmm => String::new(),
            other => format!("-{other}"),
        };
        let lock = match (self.system, self.backend) {
            (Some(system), _) => system.name(),
            (None, PvBackend::Off) => "native",
            (None, _) => "pv",
        };
        match self.handoff == HandoffSpec::NONE {
            true => format!("{lock}{backend}"),
            false => format!("{lock}{backend} {}", self.handoff),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(system) = self.system {
            write!(f, "{system}, ")?;
        }
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
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("policy", &self.policy.to_string())?;
        if let Some(system) = self.system {
            map.serialize_entry("lock", system.name())?;
        }
        map.serialize_entry("backend", self.backend.name())?;
        map.serialize_entry("handoff", &self.handoff)?;
        map.end()
    }
}
