//! `bench trace`: what keeping a timeline costs.
//!
//! In rounds, each of which runs every policy three times in a random order: traced, and twice
//! plain. The second plain one is the measure's own error: a thing compared with itself.

use serde::Serialize;
use thiserror::Error;

use std::time::Duration;

use super::{
    Cell, CellError, Interrupt, Sample,
    cell::RunSpec,
    stats::{self, Estimate},
    timeline::Timeline,
};
use crate::{
    guest::handoff::HandoffSpec,
    rng::SplitMix64,
    sched::{PolicySpec, ScheduleSpec},
    units::{CpuList, Nanos, VcpuCount},
    vm::PvBackend,
};

/// What is measured and how.
#[derive(Debug)]
pub struct TracePlan {
    /// Slots, a CPU each.
    pub cpus: CpuList,
    /// vCPUs, all with PV locks.
    pub vcpus: VcpuCount,
    /// Under which schedules.
    pub policies: Vec<PolicySpec>,
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
}

/// The three runs of a round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trio {
    /// Acquisitions a second with a timeline.
    pub traced: f64,
    /// Without.
    pub plain: f64,
    /// Without, too.
    pub again: f64,
    /// What the timeline kept, a second.
    pub kept: f64,
    /// What it had no room for.
    pub lost: u64,
}

/// A policy's rounds.
#[derive(Debug, Serialize)]
pub struct Trios {
    /// Its words.
    pub policy: String,
    /// In order.
    pub rounds: Vec<Trio>,
}

impl Trios {
    /// Traced over plain: within each round over the geometric mean of its plain runs.
    pub fn traced(&self) -> Option<Estimate> {
        let pair = |trio: &Trio| (trio.traced, (trio.plain * trio.again).sqrt());
        stats::ratio_of_pairs(&self.rounds.iter().map(pair).collect::<Vec<_>>())
    }

    /// Plain over plain, which is 1 but for the machine's noise.
    pub fn itself(&self) -> Option<Estimate> {
        let pair = |trio: &Trio| (trio.again, trio.plain);
        stats::ratio_of_pairs(&self.rounds.iter().map(pair).collect::<Vec<_>>())
    }

    /// The median of a figure.
    pub fn median(&self, figure: impl FnMut(&Trio) -> f64) -> Option<f64> {
        stats::median(&self.rounds.iter().map(figure).collect::<Vec<_>>())
    }

    /// What all timelines had no room for.
    pub fn lost(&self) -> u64 {
        self.rounds.iter().map(|trio| trio.lost).sum()
    }
}

/// Everything that was measured.
#[derive(Debug)]
pub struct TraceFigures {
    /// By policy.
    pub policies: Vec<Trios>,
    /// Fewer rounds than asked for.
    pub interrupted: bool,
}

/// A run failed.
#[derive(Debug, Error)]
#[error("{policy}, {}: {source}", if *.traced { "traced" } else { "plain" })]
pub struct TraceBenchError {
    /// Its policy.
    policy: PolicySpec,
    /// Was it traced?
    traced: bool,
    /// What happened.
    source: CellError,
}

/// Measures; `started` hears of each round of a policy before it begins.
pub fn run(
    plan: &TracePlan,
    cell: &dyn Cell,
    interrupt: &Interrupt,
    started: &mut dyn FnMut(u32, &PolicySpec),
) -> Result<TraceFigures, TraceBenchError> {
    let of = |policy: &PolicySpec| Trios { policy: policy.to_string(), rounds: Vec::new() };
    let mut figures =
        TraceFigures { policies: plan.policies.iter().map(of).collect(), interrupted: false };
    let mut rng = SplitMix64::new(plan.seed);
    for round in 0..plan.rounds {
        let mut order: Vec<_> = plan.policies.iter().zip(&mut figures.policies).collect();
        rng.shuffle(&mut order);
        for (policy, trios) in order {
            started(round, policy);
            let mut measure = |traced| measure(plan, policy, traced, cell, interrupt);
            match trio(&mut rng, &mut measure) {
                Ok(trio) => trios.rounds.push(trio),
                Err((_, CellError::Interrupted)) => {
                    figures.interrupted = true;
                    return Ok(figures);
                }
                Err((traced, source)) => {
                    return Err(TraceBenchError { policy: policy.clone(), traced, source });
                }
            }
        }
    }
    Ok(figures)
}

/// Three runs of a policy in a random order; an error says whether its run was traced.
fn trio(
    rng: &mut SplitMix64,
    measure: &mut dyn FnMut(bool) -> Result<Sample, CellError>,
) -> Result<Trio, (bool, CellError)> {
    let mut order = [Some(0), Some(1), None];
    rng.shuffle(&mut order);
    let (mut plain, mut traced) = ([0.0; 2], Sample::default());
    for which in order {
        let sample = measure(which.is_none()).map_err(|error| (which.is_none(), error))?;
        match which {
            Some(which) => plain[which] = sample.rate(),
            None => traced = sample,
        }
    }
    let timeline = traced.timeline.as_deref();
    Ok(Trio {
        traced: traced.rate(),
        plain: plain[0],
        again: plain[1],
        kept: timeline.map_or(0.0, kept),
        lost: timeline.map_or(0, |timeline| timeline.lost.all()),
    })
}

/// What a timeline kept a second of what it tells of.
fn kept(timeline: &Timeline) -> f64 {
    let schedule = timeline.schedule.as_ref().map_or(0, |of| {
        of.turns.len() + of.preemptions.len() + of.sightings.len() + of.handoffs.len()
    });
    let events = timeline.events.iter().map(Vec::len).sum::<usize>() + timeline.late.len();
    (schedule + events + timeline.progress.len()) as f64 / (timeline.span.length().0 as f64 / 1e9)
}

fn measure(
    plan: &TracePlan,
    policy: &PolicySpec,
    trace: bool,
    cell: &dyn Cell,
    interrupt: &Interrupt,
) -> Result<Sample, CellError> {
    let run = RunSpec {
        vcpus: plan.vcpus,
        vms: 1,
        cpus: &plan.cpus,
        system: None,
        backend: PvBackend::Vmm,
        handoff: HandoffSpec::NONE,
        schedule: ScheduleSpec::new(
            policy.clone(),
            plan.cpus.cpus().to_vec(),
            plan.slice,
            plan.seed,
        ),
        faults: None,
        warm_up: plan.warm_up,
        duration: plan.duration,
        trace,
        onlooker: None,
    };
    cell.run(&run, interrupt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_one_traced_run_and_two_plain_ones_in_every_order() {
        let mut rng = SplitMix64::new(1);
        let mut orders = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut order = Vec::new();
            let trio = trio(&mut rng, &mut |traced| {
                order.push(traced);
                let operations = vec![if traced { 90 } else { 100 }];
                Ok(Sample { seconds: 1.0, operations, ..Sample::default() })
            });
            let trio = trio.unwrap();
            assert_eq!((trio.traced, trio.plain, trio.again), (90.0, 100.0, 100.0));
            orders.insert(order);
        }
        assert_eq!(orders.len(), 3, "traced first, second and last");
    }

    #[test]
    fn what_a_trace_costs_is_told_from_the_machines_noise() {
        // Rounds whose machine is twice as fast every other time; traced runs lose a tenth.
        let rounds = (0..20u32)
            .map(|round| {
                let speed = f64::from(1 + round % 2) * (1.0 + f64::from(round) / 1000.0);
                Trio { traced: 0.9 * speed, plain: speed, again: speed, kept: 0.0, lost: 1 }
            })
            .collect();
        let trios = Trios { policy: "rr".into(), rounds };
        let traced = trios.traced().unwrap();
        assert!((traced.value - 0.9).abs() < 1e-9, "{traced:?}");
        assert!(!traced.interval.unwrap().contains(1.0), "{traced:?}");
        assert_eq!(trios.itself().unwrap().value, 1.0);
        assert_eq!(trios.lost(), 20);
    }
}
