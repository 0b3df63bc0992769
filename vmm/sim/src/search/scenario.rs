//! What is simulated, in a form to vary, shrink and save.

use base::faults::FaultSpec;
use base::handoff::HandoffSpec;
use base::host_extras::NoiseTimes;
use base::text;
use base::units::Nanos;
use sched::PolicySpec;
use serde::{Deserialize, Serialize};
use simulated_locks::{Handoff, System};
use thiserror::Error;

use crate::host_model::{HostModel, Noise};
use crate::lines::LineLaw;
use crate::load::{Load, LockLoad};
use crate::machine::Machine;
use crate::random::Span;
use crate::spec::{SimSpecError, Spec, handoff};
use crate::time::Picos;

/// All of a simulation but its machine: with one, it determines every event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The system.
    #[serde(with = "text")]
    pub system: System,
    /// The system's options, if it is a PV ticketlock.
    #[serde(with = "text")]
    pub handoff: HandoffSpec,
    /// CPUs.
    pub cpus: usize,
    /// vCPUs.
    pub vcpus: usize,
    /// Looks before a halt.
    pub spin_threshold: u32,
    /// Mean think time in increments of the machine; in steps under a law without caches.
    pub think: u32,
    /// Mean critical time, likewise.
    pub critical: u32,
    /// Both are always that long; else they are uniform from zero to twice that.
    pub is_fixed: bool,
    /// The schedule's policy.
    #[serde(with = "text")]
    pub policy: PolicySpec,
    /// The schedule's slice in nanoseconds.
    pub slice: u64,
    /// Faults of kicks and halts.
    #[serde(with = "faults")]
    pub faults: FaultSpec,
    /// Threads of the host that stop vCPUs at any access.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseTimes>,
    /// How memory behaves.
    #[serde(default = "usual_law", skip_serializing_if = "is_usual")]
    pub law: LineLaw,
    /// Locks, which share the table of their vCPUs. Each operation takes any of them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub locks: usize,
    /// Operations after which it ends.
    pub operations: u64,
    /// The seed of all that is random.
    pub seed: u64,
}

/// What makes a scenario that was read from a file impossible.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// A number that is too small or too large.
    #[error("{key}: {value} is not from {least} to {most}")]
    Range {
        /// The number's key.
        key: &'static str,
        /// As in the file.
        value: u64,
        /// The least possible.
        least: u64,
        /// The most possible.
        most: u64,
    },
    /// As any specification.
    #[error(transparent)]
    Spec(#[from] SimSpecError),
}

/// The law of a search: windows between a look and the store that should have been seen are wide.
pub(super) const fn usual_law() -> LineLaw {
    LineLaw::LateInvalidations
}

fn is_usual(law: &LineLaw) -> bool {
    *law == usual_law()
}

const fn one() -> usize {
    1
}

const fn is_one(locks: &usize) -> bool {
    *locks == 1
}

/// The longest times that a scenario may have: in increments.
const MOST_WORK: u64 = 1_000_000;
/// The most operations.
const MOST_OPERATIONS: u64 = 1_000_000_000;
/// The most locks.
const MOST_LOCKS: u64 = 8;

impl Scenario {
    /// The system's options as the locks have them.
    pub(super) fn handoff(&self) -> Handoff {
        handoff(self.handoff)
    }

    /// As a specification.
    pub fn spec(&self, machine: &Machine) -> Spec {
        let machine =
            if self.law.has_caches() { machine.clone() } else { Machine::of_steps(self.cpus) };
        let time = |increments: u32| {
            let mean = Picos(machine.costs.increment.0.saturating_mul(increments.into()));
            if self.is_fixed { Span::Fixed(mean) } else { Span::Uniform(mean) }
        };
        let lock = LockLoad { share: 1.0, critical: time(self.critical) };
        let load = Load {
            has_data: true,
            locks: vec![lock; self.locks],
            shares_table: true,
            locks_lockrefs: !self.law.has_caches(),
            ..Load::of(time(self.think), lock.critical)
        };
        Spec {
            law: self.law,
            cpus: self.cpus,
            handoff: self.handoff(),
            spin_threshold: self.spin_threshold,
            policy: self.policy.clone(),
            slice: Nanos(self.slice),
            faults: self.faults,
            host: HostModel { noise: self.noise.map(Noise::from), ..HostModel::default() },
            seed: self.seed,
            ..Spec::new(machine, self.system, self.vcpus, load)
        }
    }

    /// Can it be simulated on `machine`?
    pub fn check(&self, machine: &Machine) -> Result<(), ScenarioError> {
        let ranges = [
            ("think", self.think.into(), 0, MOST_WORK),
            ("critical", self.critical.into(), 0, MOST_WORK),
            ("slice", self.slice, 1_000, 1_000_000_000),
            ("operations", self.operations, 1, MOST_OPERATIONS),
            ("locks", self.locks as u64, 1, MOST_LOCKS),
        ];
        for (key, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(ScenarioError::Range { key, value, least, most });
            }
        }
        Ok(self.spec(machine).check()?)
    }
}

/// As [`text`]; none are the word `none`.
mod faults {
    use base::faults::FaultSpec;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(
        faults: &FaultSpec,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        if *faults == FaultSpec::default() {
            serializer.serialize_str("none")
        } else {
            serializer.collect_str(faults)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<FaultSpec, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "none" => Ok(FaultSpec::default()),
            list => list.parse().map_err(D::Error::custom),
        }
    }
}
