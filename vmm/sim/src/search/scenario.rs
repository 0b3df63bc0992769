//! The input of a simulation in a form to vary, shrink and save.

use base::faults::{FaultSpec, Probability};
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
use crate::load::{Load, LockLoad, Sleep};
use crate::machine::Machine;
use crate::random::Span;
use crate::spec::{SimSpecError, Spec, handoff};
use crate::time::Picos;

/// All inputs of a simulation except its machine. Together they determine every event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The system.
    #[serde(with = "text")]
    pub system: System,
    /// Handoff options of the system.
    #[serde(with = "text")]
    pub handoff: HandoffSpec,
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// Spin iterations before a halt.
    pub spin_threshold: u32,
    /// Mean think time in increments of the machine, or in steps under a law without caches.
    pub think: u32,
    /// Mean critical time in the same unit.
    pub critical: u32,
    /// Whether both times are constant. Otherwise they are uniform from zero to twice the mean.
    pub is_fixed: bool,
    /// The schedule's policy.
    #[serde(with = "text")]
    pub policy: PolicySpec,
    /// The schedule's slice in nanoseconds.
    pub slice: u64,
    /// Faults of kicks and halts.
    #[serde(with = "faults")]
    pub faults: FaultSpec,
    /// Background noise: host threads that may stop vCPUs at any access.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseTimes>,
    /// The law of the cache lines.
    #[serde(default = "default_law", skip_serializing_if = "is_default_law")]
    pub law: LineLaw,
    /// Number of locks, which share one waiter table. Each operation takes one at random.
    #[serde(default = "one_lock", skip_serializing_if = "is_one_lock")]
    pub locks: usize,
    /// Whether some operations call `try_lock`, and `lock` only if that fails.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tries: bool,
    /// Mean time in nanoseconds for which a vCPU takes no locks, from time to time, and latest start of a vCPU. Zero:
    /// never.
    #[serde(default, skip_serializing_if = "is_default")]
    pub absence: u64,
    /// Whether the CPUs belong to two sockets (three, if their number is odd) on any machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_split: bool,
    /// Number of operations.
    pub operations: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// The reason why a scenario from a file is invalid.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// A number is out of range.
    #[error("{key}: {value} is not in the range {min} to {max}")]
    Range {
        /// Key of the number.
        key: &'static str,
        /// Value in the file.
        value: u64,
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// The specification is invalid.
    #[error(transparent)]
    Spec(#[from] SimSpecError),
}

/// The law of a search, with wide windows between a load and a store that it should have seen.
pub(super) const fn default_law() -> LineLaw {
    LineLaw::LateInvalidations
}

fn is_default_law(law: &LineLaw) -> bool {
    *law == default_law()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn one_lock() -> usize {
    1
}

const fn is_one_lock(locks: &usize) -> bool {
    *locks == 1
}

/// Maximum think or critical time, in increments.
const MAX_WORK: u64 = 1_000_000;
const MAX_OPERATIONS: u64 = 1_000_000_000;
const MAX_LOCKS: u64 = 8;
/// Share of operations that call `try_lock`, and of think times that end in an absence.
const SOME: f64 = 0.25;

impl Scenario {
    /// The system's options in the type of the locks.
    pub(super) fn handoff(&self) -> Handoff {
        handoff(self.handoff)
    }

    /// The specification of the scenario on `machine`.
    pub fn spec(&self, machine: &Machine) -> Spec {
        let mut machine =
            if self.law.has_caches() { machine.clone() } else { Machine::of_steps(self.cpus) };
        if self.is_split {
            machine.split(self.cpus);
        }
        let chance = Probability::new(SOME).ok();
        let absence = Picos::from(Nanos(self.absence));
        let time_off = |chance| Sleep { chance, time: Span::Uniform(absence) };
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
            tries: chance.filter(|_| self.tries),
            sleep: chance.filter(|_| self.absence != 0).map(time_off),
            ..Load::new(time(self.think), lock.critical)
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
            starts: absence,
            seed: self.seed,
            ..Spec::new(machine, self.system, self.vcpus, load)
        }
    }

    /// Checks that the scenario can be simulated on `machine`.
    pub fn check(&self, machine: &Machine) -> Result<(), ScenarioError> {
        let ranges = [
            ("think", self.think.into(), 0, MAX_WORK),
            ("critical", self.critical.into(), 0, MAX_WORK),
            ("slice", self.slice, 1_000, 1_000_000_000),
            ("operations", self.operations, 1, MAX_OPERATIONS),
            ("locks", self.locks as u64, 1, MAX_LOCKS),
            ("absence", self.absence, 0, 1_000_000_000),
        ];
        for (key, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                return Err(ScenarioError::Range { key, value, min, max });
            }
        }
        Ok(self.spec(machine).check()?)
    }
}

/// Like [`text`], but writes the absence of faults as `none`.
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
