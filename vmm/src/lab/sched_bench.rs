//! `bench sched`: what policies keep of the throughput, what a deliberate preemption costs, and
//! what the schedule itself does.
//!
//! Everything is measured in rounds: each runs every case once, in a seeded random order, so that a
//! drift of the machine falls on all alike.

use std::{io, time::Duration};

use serde::Serialize;
use thiserror::Error;

use super::{
    Cell, CellError, Interrupt, Sample,
    boot_bench::{BenchError, exits},
    cell::RunSpec,
    thread_wakeup,
};
use crate::{
    guest::handoff::HandoffSpec,
    rng::SplitMix64,
    sched::{PolicySpec, ScheduleSpec},
    units::{CpuList, Nanos, UnitError, VcpuCount},
    vm::PvBackend,
};

/// What is measured and how.
#[derive(Debug)]
pub struct SchedPlan {
    /// Slots, a CPU each.
    pub cpus: CpuList,
    /// How long a turn lasts.
    pub slice: Nanos,
    /// Rounds.
    pub rounds: u32,
    /// Before each measurement.
    pub warm_up: Duration,
    /// Each measurement.
    pub duration: Duration,
    /// For the order and the schedules.
    pub seed: u64,
    /// Cases with so many times more vCPUs than slots.
    pub overcommit: Vec<u32>,
}

/// One thing to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Case {
    /// Machines.
    pub vms: u32,
    /// vCPUs of each.
    pub vcpus: u32,
    /// Who schedules.
    #[serde(serialize_with = "text")]
    pub policy: PolicySpec,
    /// `off`: native locks.
    #[serde(serialize_with = "text")]
    pub backend: PvBackend,
}

fn text<S: serde::Serializer>(
    value: &impl std::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// What a case gave.
#[derive(Debug)]
pub struct CaseSamples {
    /// Which.
    pub case: Case,
    /// A sample a round.
    pub samples: Vec<Sample>,
}

/// Costs of the host, once a round.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HostCosts {
    /// A futex handoff between two threads on one CPU, in nanoseconds.
    pub futex_ns: f64,
    /// A KVM exit, in nanoseconds.
    pub exit_ns: f64,
}

/// Everything that was measured.
#[derive(Debug)]
pub struct SchedFigures {
    /// All slots busy, nobody waiting: what the others are shares of.
    pub baselines: Vec<CaseSamples>,
    /// Policies under overcommit.
    pub policies: Vec<CaseSamples>,
    /// Deliberate preemptions.
    pub injected: Vec<CaseSamples>,
    /// The host's costs.
    pub host: Vec<HostCosts>,
    /// Fewer rounds than asked for.
    pub interrupted: bool,
}

/// Why there is nothing.
#[derive(Debug, Error)]
pub enum SchedBenchError {
    /// A run failed.
    #[error("{vcpus} vCPUs, {policy}, {backend}: {source}")]
    Cell {
        /// vCPUs of each machine.
        vcpus: u32,
        /// Its policy.
        policy: PolicySpec,
        /// Its backend.
        backend: PvBackend,
        /// What happened.
        source: CellError,
    },
    /// Too many vCPUs.
    #[error(transparent)]
    Vcpus(#[from] UnitError),
    /// The host's costs cannot be measured.
    #[error("the host's costs: {0}")]
    Host(#[from] BenchError),
    /// Nor can threads' handoffs.
    #[error("cannot measure how threads wake each other: {0}")]
    Raw(#[source] io::Error),
}

/// Policies that are compared with `rr`.
const POLICIES: [&str; 4] = ["rr", "deferred", "kick-boost", "directed-yield"];
/// How often a second a deliberate preemption is made, and how long it keeps the vCPU off.
const INJECTED: [&str; 2] = ["lhp:10,20ms", "lwp:10,20ms"];

/// The cases on so many slots.
struct Cases {
    baselines: Vec<Case>,
    policies: Vec<Case>,
    injected: Vec<Case>,
}

impl Cases {
    fn new(slots: u32, overcommit: &[u32]) -> Self {
        let both = |vms, vcpus, policy: &'static str| {
            [PvBackend::Off, PvBackend::Vmm].into_iter().filter_map(move |backend| {
                Some(Case { vms, vcpus, policy: policy.parse().ok()?, backend })
            })
        };
        let mut policies = Vec::new();
        for times in overcommit {
            for policy in POLICIES {
                policies.extend(both(1, slots * times, policy));
            }
            policies.extend(both(*times, slots, "gang"));
        }
        Self {
            baselines: both(1, slots, "rr").collect(),
            policies,
            injected: INJECTED.iter().flat_map(|policy| both(1, slots, policy)).collect(),
        }
    }
}

/// Measures; `started` hears of each run before it begins.
pub fn run(
    plan: &SchedPlan,
    cell: &dyn Cell,
    interrupt: &Interrupt,
    started: &mut dyn FnMut(u32, &Case),
) -> Result<SchedFigures, SchedBenchError> {
    let slots = plan.cpus.cpus().len() as u32;
    let Cases { baselines, policies, injected } = Cases::new(slots, &plan.overcommit);
    let empty = |cases: Vec<Case>| -> Vec<CaseSamples> {
        cases.into_iter().map(|case| CaseSamples { case, samples: Vec::new() }).collect()
    };
    let mut figures = SchedFigures {
        baselines: empty(baselines),
        policies: empty(policies),
        injected: empty(injected),
        host: Vec::new(),
        interrupted: false,
    };
    let mut rng = SplitMix64::new(plan.seed);
    for round in 0..plan.rounds {
        figures.host.push(host_costs(plan, round)?);
        let SchedFigures { baselines, policies, injected, .. } = &mut figures;
        let mut order: Vec<&mut CaseSamples> =
            baselines.iter_mut().chain(policies).chain(injected).collect();
        rng.shuffle(&mut order);
        for case in order {
            started(round, &case.case);
            match measure(plan, &case.case, cell, interrupt) {
                Ok(sample) => case.samples.push(sample),
                Err(CellError::Interrupted) => {
                    figures.interrupted = true;
                    return Ok(figures);
                }
                Err(source) => {
                    let Case { vcpus, policy, backend, .. } = case.case.clone();
                    return Err(SchedBenchError::Cell { vcpus, policy, backend, source });
                }
            }
        }
    }
    Ok(figures)
}

fn measure(
    plan: &SchedPlan,
    case: &Case,
    cell: &dyn Cell,
    interrupt: &Interrupt,
) -> Result<Sample, CellError> {
    let run = RunSpec {
        vcpus: VcpuCount::try_from(case.vcpus).map_err(|_| CellError::Interrupted)?,
        vms: case.vms,
        cpus: &plan.cpus,
        system: None,
        backend: case.backend,
        handoff: HandoffSpec::NONE,
        schedule: ScheduleSpec::new(
            case.policy.clone(),
            plan.cpus.cpus().to_vec(),
            plan.slice,
            plan.seed,
        ),
        faults: None,
        warm_up: plan.warm_up,
        duration: plan.duration,
        trace: false,
        onlooker: None,
    };
    cell.run(&run, interrupt)
}

fn host_costs(plan: &SchedPlan, round: u32) -> Result<HostCosts, SchedBenchError> {
    let cpu = plan.cpus.cpus()[0];
    let exits = exits::measure(cpu, round.is_multiple_of(2))?;
    let futex_ns = thread_wakeup::mean_handoff(cpu).map_err(SchedBenchError::Raw)?;
    Ok(HostCosts { futex_ns, exit_ns: exits.bare_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_meets_both_locks_at_every_ratio() {
        let cases = Cases::new(2, &[2, 4]);
        assert_eq!((cases.baselines.len(), cases.injected.len()), (2, 4));
        assert_eq!(cases.policies.len(), 2 * (POLICIES.len() + 1) * 2);
        let gang = cases.policies.iter().find(|case| case.policy.name() == "gang").unwrap();
        assert_eq!((gang.vms, gang.vcpus), (2, 2), "gangs as wide as the slots");
    }
}
