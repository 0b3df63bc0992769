//! What the samples of one level say.

use serde::Serialize;

use super::{
    Contender, LevelSamples, Plan,
    cell::Sample,
    latencies::Percentiles,
    stats::{self, Estimate, Fairness, Summary},
    sync_counters::{WorkCounts, WorkRow},
};
use crate::{
    machine::counters::FaultCounts,
    sched::{driver::Measured, policy::Hits},
    units::VcpuCount,
};

/// One contender at one level.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Which.
    #[serde(flatten)]
    pub contender: Contender,
    /// Acquisitions a second.
    pub rate: Summary,
    /// Halts a second, over all runs.
    pub halts: f64,
    /// Kicks a second, over all runs.
    pub kicks: f64,
    /// Share of the acquisitions that had to wait: that were not served at the first look.
    pub slow: Option<f64>,
    /// Waits a second, for any lock of a guest's kernel, that used up the spin threshold.
    pub long_waits: Option<f64>,
    /// The median run's fairness between vCPUs.
    pub fairness: Option<Fairness>,
    /// What its schedule did, if it was not the host's and the guest says what it does with locks.
    pub schedule: Option<ScheduleRow>,
    /// Failures of mutual exclusion, in all runs.
    pub violations: u64,
    /// Tickets served out of order, in all runs.
    pub disorder: u64,
    /// What went wrong on purpose in all runs, if anything was to.
    pub faults: Option<FaultCounts>,
    /// What a system of the lock library did beside its operations.
    pub work: Option<WorkRow>,
    /// How long operations took, if they were timed.
    pub latencies: Option<Percentiles>,
    /// How many of them had not ended when the runs did.
    pub open_waits: u64,
}

/// A schedule's figures over all runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ScheduleRow {
    /// Lock-holder preemptions a second.
    pub lhp: f64,
    /// Next-in-line preemptions a second.
    pub lwp: f64,
    /// Preemptions a second of a vCPU that was drawing a ticket: at most so many more are of a holder
    /// or of the next in line.
    pub entering: f64,
    /// Share of the slots' time spent spinning for a lock whose holder or next in line was
    /// preempted.
    pub wasted: f64,
    /// Hits and misses, of a policy that aims.
    pub hits: Option<Hits>,
}

/// What a contrast comes to, as one of all contrasts of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The test finds a difference, and the PV median is above.
    PvWins,
    /// The test finds a difference, and the baseline's median is above.
    NativeWins,
    /// The test finds none.
    NoDifference,
    /// Fewer runs of either than [`least_runs`].
    TooFewRuns,
}

/// A PV backend against the baseline.
#[derive(Debug, Clone, Serialize)]
pub struct Contrast {
    /// The PV contender.
    #[serde(flatten)]
    pub contender: Contender,
    /// The baseline.
    pub against: Contender,
    /// Median over median; None when the baseline's is zero.
    pub ratio: Option<Estimate>,
    /// Median of the ratios of runs that were neighbours in time.
    pub paired: Option<Estimate>,
    /// Of the rank-sum test, corrected for all contrasts.
    pub test: stats::Verdict,
    /// What it comes to.
    pub verdict: Verdict,
}

/// How many runs of each contender it takes at least to tell a difference in one of so many
/// contrasts.
pub fn least_runs(contrasts: usize) -> usize {
    stats::ENOUGH.max(stats::samples_for(contrasts))
}

/// One level of overcommit.
#[derive(Debug, Clone, Serialize)]
pub struct LevelReport {
    /// vCPUs of each machine.
    #[serde(serialize_with = "count")]
    pub vcpus: VcpuCount,
    /// vCPUs of all machines for each slot.
    pub overcommit: f64,
    /// One a contender that has runs, in the plan's order.
    pub rows: Vec<Row>,
    /// One a PV contender and each of its baselines, if both have runs.
    pub contrasts: Vec<Contrast>,
    /// Runs are missing.
    pub partial: bool,
}

fn count<S: serde::Serializer>(vcpus: &VcpuCount, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(vcpus.get())
}

impl LevelReport {
    /// Analyses the runs of all levels of `plan` that there are. Their contrasts are judged together:
    /// of twenty by themselves one would be found different by chance.
    pub fn all(plan: &Plan, levels: &[LevelSamples]) -> Vec<Self> {
        let mut reports: Vec<Self> =
            levels.iter().map(|samples| Self::unjudged(plan, samples)).collect();
        let pairs: Vec<_> = reports
            .iter()
            .zip(levels)
            .flat_map(|(report, samples)| report.contrasts.iter().map(move |its| (samples, its)))
            .map(|(samples, contrast)| {
                (rates(samples, &contrast.contender), rates(samples, &contrast.against))
            })
            .collect();
        let least = least_runs(pairs.len());
        let contrasts = reports.iter_mut().flat_map(|report| &mut report.contrasts);
        let judged = pairs.iter().zip(stats::judge(&pairs, plan.seed));
        for (contrast, ((pv, native), test)) in contrasts.zip(judged) {
            contrast.test = test;
            contrast.verdict = verdict(pv, native, test, least);
        }
        reports
    }

    /// Analyses the runs of one level, whose contrasts nobody has judged yet: to show them before
    /// the others are there.
    pub fn unjudged(plan: &Plan, samples: &LevelSamples) -> Self {
        let rows: Vec<Row> =
            plan.contenders.iter().filter_map(|contender| row(plan, samples, contender)).collect();
        let contrasts = rows
            .iter()
            .flat_map(|row| {
                let bases =
                    rows.iter().filter(|base| base.contender.is_baseline_of(&row.contender));
                bases.map(|base| contrast(samples, base, row, plan.seed))
            })
            .collect();
        Self {
            vcpus: samples.vcpus,
            overcommit: plan.overcommit(samples.vcpus),
            partial: samples.runs.len() < plan.contenders.len() * plan.runs as usize,
            rows,
            contrasts,
        }
    }

    /// Tickets served out of order.
    pub fn disorder(&self) -> u64 {
        self.rows.iter().map(|row| row.disorder).sum()
    }

    /// Failures of mutual exclusion.
    pub fn violations(&self) -> u64 {
        self.rows.iter().map(|row| row.violations).sum()
    }
}

fn rates(samples: &LevelSamples, contender: &Contender) -> Vec<f64> {
    samples.of(contender).map(Sample::rate).collect()
}

fn row(plan: &Plan, samples: &LevelSamples, contender: &Contender) -> Option<Row> {
    let rate = stats::summarise(&rates(samples, contender))?;
    let of = || samples.of(contender);
    let total = |figure: fn(&Sample) -> u64| of().map(figure).sum::<u64>();
    let seconds: f64 = of().map(|sample| sample.seconds).sum();
    Some(Row {
        contender: contender.clone(),
        rate,
        halts: total(|sample| sample.halts) as f64 / seconds,
        kicks: total(|sample| sample.kicks) as f64 / seconds,
        slow: slow_share(of()),
        long_waits: of()
            .map(|sample| sample.long_waits)
            .sum::<Option<u64>>()
            .map(|count| count as f64 / seconds),
        fairness: median_fairness(of()),
        schedule: schedule_row(
            of().filter_map(|sample| Some(sample.schedule.as_ref()?.measured)),
            plan.slots as f64,
        ),
        violations: total(|sample| sample.violations),
        disorder: total(|sample| sample.disorder),
        faults: of().filter_map(|sample| sample.faults).reduce(|mut all, its| {
            all += its;
            all
        }),
        work: work_row(contender, of(), seconds),
        latencies: percentiles(of()),
        open_waits: of().filter_map(|sample| Some(sample.latencies.as_ref()?.open())).sum(),
    })
}

/// None if the guest does not count it.
fn work_row<'a>(
    contender: &Contender,
    samples: impl Iterator<Item = &'a Sample>,
    seconds: f64,
) -> Option<WorkRow> {
    let family = contender.system?.family();
    let (mut counts, mut operations, mut slow) = (WorkCounts::default(), 0, 0);
    for sample in samples {
        counts += sample.work?;
        operations += sample.acquisitions();
        slow += sample.slow.unwrap_or(0);
    }
    Some(WorkRow::new(family, counts, operations, slow, seconds))
}

fn percentiles<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Percentiles> {
    let latencies = samples.filter_map(|sample| sample.latencies.clone());
    latencies.reduce(|all, its| all.merge(&its))?.percentiles()
}

fn schedule_row(measured: impl Iterator<Item = Measured>, slots: f64) -> Option<ScheduleRow> {
    let all = measured.reduce(|mut all, its| {
        all += its;
        all
    })?;
    let (totals, seconds) = (all.totals, all.seconds());
    // All of them at nobody knows what: a guest without telemetry.
    if seconds == 0.0 || totals.preemptions > 0 && totals.unknown == totals.preemptions {
        return None;
    }
    Some(ScheduleRow {
        lhp: totals.lhp as f64 / seconds,
        lwp: totals.lwp as f64 / seconds,
        entering: totals.entering as f64 / seconds,
        wasted: totals.wasted_spin_ns as f64 / 1e9 / (slots * seconds),
        hits: all.hits,
    })
}

/// None when there are no acquisitions, or the lock does not count the slow ones.
fn slow_share<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<f64> {
    let (mut slow, mut all) = (0, 0);
    for sample in samples {
        slow += sample.slow?;
        all += sample.acquisitions();
    }
    (all > 0).then(|| slow as f64 / all as f64)
}

fn median_fairness<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Fairness> {
    let (even, jain): (Vec<f64>, Vec<f64>) = samples
        .filter_map(|sample| stats::fairness(&sample.operations))
        .map(|fairness| (fairness.min_over_max, fairness.jain))
        .unzip();
    Some(Fairness { min_over_max: stats::median(&even)?, jain: stats::median(&jain)? })
}

fn contrast(samples: &LevelSamples, base: &Row, row: &Row, seed: u64) -> Contrast {
    let pairs: Vec<(f64, f64)> = samples
        .pairs(&row.contender, &base.contender)
        .map(|(pv, native)| (pv.rate(), native.rate()))
        .collect();
    Contrast {
        contender: row.contender.clone(),
        against: base.contender.clone(),
        ratio: stats::ratio_of_medians(
            &rates(samples, &row.contender),
            &rates(samples, &base.contender),
            seed,
        ),
        paired: stats::ratio_of_pairs(&pairs),
        test: stats::Verdict::default(),
        verdict: Verdict::TooFewRuns,
    }
}

/// The test says whether, the medians which.
fn verdict(pv: &[f64], native: &[f64], test: stats::Verdict, least: usize) -> Verdict {
    if pv.len().min(native.len()) < least {
        return Verdict::TooFewRuns;
    }
    match (stats::median(pv), stats::median(native)) {
        (Some(pv), Some(native)) if test.significant && pv > native => Verdict::PvWins,
        (Some(pv), Some(native)) if test.significant && pv < native => Verdict::NativeWins,
        _ => Verdict::NoDifference,
    }
}

#[cfg(test)]
mod tests;
