//! What the samples of `bench sched` come to.

use serde::Serialize;

use crate::{
    lab::{
        Sample,
        sched_bench::{Case, CaseSamples, HostCosts, SchedFigures, SchedPlan},
        stats::{self, Estimate},
    },
    sched::{
        accounting::Preemption,
        driver::{Latency, Measured},
        log::TurnEnd,
    },
    units::Nanos,
    vm::PvBackend,
};

/// A case beside its baseline.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) case: Case,
    pub(super) overcommit: f64,
    pub(super) runs: usize,
    /// Acquisitions a second.
    pub(super) rate: Option<Estimate>,
    /// Of the baseline's of the same lock: the ratio of medians.
    pub(super) kept: Option<Estimate>,
    /// The median run's fairness.
    pub(super) jain: Option<f64>,
    pub(super) halts: f64,
    pub(super) lhp: f64,
    pub(super) lwp: f64,
    pub(super) yields: f64,
    pub(super) forced: f64,
    /// Share of the slots' time.
    pub(super) wasted: f64,
}

fn rates(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(Sample::rate).collect()
}

fn kept(of: &CaseSamples, base: Option<&CaseSamples>, slots: f64, seed: u64) -> Kept {
    let samples = &of.samples;
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let mut all = Measured::default();
    samples
        .iter()
        .filter_map(|sample| sample.schedule.as_ref())
        .for_each(|schedule| all += schedule.measured);
    let (totals, scheduled) = (all.totals, all.seconds());
    let each = |count: u64| if count > 0 { count as f64 / scheduled } else { 0.0 };
    let jain: Vec<f64> = samples
        .iter()
        .filter_map(|sample| stats::fairness(&sample.operations))
        .map(|fairness| fairness.jain)
        .collect();
    Kept {
        case: of.case.clone(),
        overcommit: f64::from(of.case.vms * of.case.vcpus) / slots,
        runs: samples.len(),
        rate: stats::median_estimate(&rates(samples)),
        kept: base
            .and_then(|base| stats::ratio_of_medians(&rates(samples), &rates(&base.samples), seed)),
        jain: stats::median(&jain),
        halts: samples.iter().map(|sample| sample.halts).sum::<u64>() as f64 / seconds,
        lhp: each(totals.lhp),
        lwp: each(totals.lwp),
        yields: each(totals.yields),
        forced: each(totals.forced),
        wasted: each(totals.wasted_spin_ns) / 1e9 / slots,
    }
}

/// What deliberate preemptions did.
#[derive(Debug, Serialize)]
pub(super) struct Injected {
    #[serde(flatten)]
    pub(super) case: Case,
    /// Preemptions made.
    pub(super) made: usize,
    /// Of them, verified after the stop to be of what was aimed at.
    pub(super) on_target: usize,
    /// Stops that found something else, and let it go on.
    pub(super) other_looks: u64,
    /// How long the vCPU was off, in nanoseconds.
    pub(super) off_ns: Option<stats::Quartiles>,
    /// How long others span for its lock meanwhile, in nanoseconds.
    pub(super) spun_ns: Option<stats::Quartiles>,
}

pub(super) fn injected(of: &CaseSamples) -> Injected {
    let schedules = || of.samples.iter().filter_map(|sample| sample.schedule.as_ref());
    let made: Vec<&Preemption> = schedules()
        .flat_map(|schedule| &schedule.whole.preemptions)
        .filter(|preemption| preemption.end == TurnEnd::Injected && preemption.off.is_some())
        .collect();
    let aimed_at_holders = of.case.policy.name() == "lhp";
    let on_target = made.iter().filter(|preemption| match aimed_at_holders {
        true => preemption.look.activity.is_holder(),
        false => preemption.look.activity.is_next(),
    });
    let figures = |figure: fn(&Preemption) -> Nanos| {
        let all: Vec<f64> = made.iter().map(|preemption| figure(preemption).0 as f64).collect();
        stats::quartiles(&all)
    };
    Injected {
        case: of.case.clone(),
        made: made.len(),
        on_target: on_target.count(),
        other_looks: schedules()
            .filter_map(|schedule| schedule.whole.hits)
            .map(|hits| hits.misses)
            .sum(),
        off_ns: figures(|preemption| preemption.off.unwrap_or_default()),
        spun_ns: figures(|preemption| preemption.spun),
    }
}

/// What the schedule itself does, from the runs under `rr` at the lowest overcommit.
#[derive(Debug, Serialize)]
pub(super) struct Itself {
    /// Each run's.
    pub(super) lateness: Vec<Latency>,
    pub(super) handover: Vec<Latency>,
    pub(super) futex_ns: Option<f64>,
    pub(super) exit_ns: Option<f64>,
}

pub(super) fn itself(figures: &SchedFigures) -> Itself {
    let is_rr =
        |of: &&CaseSamples| of.case.policy.name() == "rr" && of.case.backend == PvBackend::Off;
    let samples = figures.policies.iter().find(is_rr).map_or(&[][..], |of| &of.samples);
    let of = |latency: fn(&crate::sched::SchedReport) -> Latency| {
        samples.iter().filter_map(|s| s.schedule.as_ref()).map(|s| latency(&s.whole)).collect()
    };
    let host = |cost: fn(&HostCosts) -> f64| {
        stats::median(&figures.host.iter().map(cost).collect::<Vec<_>>())
    };
    Itself {
        lateness: of(|report| report.lateness),
        handover: of(|report| report.handover),
        futex_ns: host(|costs| costs.futex_ns),
        exit_ns: host(|costs| costs.exit_ns),
    }
}

/// A PV lock's handoff to a halted waiter, in its three parts.
#[derive(Debug, Serialize)]
pub(super) struct Handoff {
    #[serde(flatten)]
    pub(super) case: Case,
    pub(super) release_to_kick: Vec<Latency>,
    pub(super) kick_to_grant: Vec<Latency>,
    pub(super) grant_to_guest: Vec<Latency>,
}

/// Of each policy with PV locks at the lowest overcommit.
pub(super) fn handoffs(figures: &SchedFigures) -> Vec<Handoff> {
    let lowest = figures.policies.first().map(|of| of.case.vcpus);
    let is_one = |of: &&CaseSamples| {
        of.case.backend != PvBackend::Off && of.case.vms == 1 && Some(of.case.vcpus) == lowest
    };
    let handoff = |of: &CaseSamples| {
        let whole = || of.samples.iter().filter_map(|s| s.schedule.as_ref()).map(|s| &s.whole);
        Handoff {
            case: of.case.clone(),
            release_to_kick: whole().map(|report| report.release_to_kick).collect(),
            kick_to_grant: whole().map(|report| report.kick_to_grant).collect(),
            grant_to_guest: whole().map(|report| report.grant_to_guest).collect(),
        }
    };
    figures.policies.iter().filter(is_one).map(handoff).collect()
}

pub(super) fn all_kept(figures: &SchedFigures, plan: &SchedPlan) -> Vec<Kept> {
    let slots = plan.cpus.cpus().len() as f64;
    let base_of = |of: &CaseSamples| {
        figures.baselines.iter().find(|base| base.case.backend == of.case.backend)
    };
    let all = figures.baselines.iter().chain(&figures.policies);
    all.map(|of| kept(of, base_of(of), slots, plan.seed)).collect()
}
