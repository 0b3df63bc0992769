//! What the samples of one level say.

use serde::Serialize;

use super::{
    Contender, LevelSamples, Plan,
    cell::Sample,
    latencies::Percentiles,
    stats::{self, Estimate, Fairness, Summary},
    work::{WorkCounts, WorkRow},
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
mod tests {
    use std::time::Duration;

    use super::{
        super::compare::{
            Run,
            tests::{pair, sample},
        },
        *,
    };
    use crate::{rng::SplitMix64, units::Nanos};

    fn plan(runs: u32) -> Plan {
        Plan {
            levels: vec![VcpuCount::ONE],
            cpus: "0-1".parse().unwrap(),
            runs,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            contenders: pair(),
            vms: 1,
            slots: 2,
            slice: Nanos(1),
            recording: None,
            record: false,
            trace: false,
            seed: 1,
            faults: None,
        }
    }

    fn level(native: &[u64], pv: &[u64]) -> LevelSamples {
        let of = |contender: &Contender, rates: &[u64]| {
            rates
                .iter()
                .zip(0..)
                .map(|(rate, round)| Run {
                    contender: contender.clone(),
                    round,
                    sample: sample(*rate),
                })
                .collect::<Vec<_>>()
        };
        let runs = [of(&pair()[0], native), of(&pair()[1], pv)].concat();
        LevelSamples { vcpus: VcpuCount::try_from(3).unwrap(), runs }
    }

    fn judged(plan: &Plan, level: LevelSamples) -> LevelReport {
        LevelReport::all(plan, &[level]).remove(0)
    }

    fn verdict(native: &[u64], pv: &[u64]) -> Verdict {
        judged(&plan(6), level(native, pv)).contrasts[0].verdict
    }

    #[test]
    fn verdicts_follow_the_test() {
        let (low, high) = ([10, 11, 12, 10, 11, 12], [90, 95, 99, 91, 92, 93]);
        assert_eq!(verdict(&low, &high), Verdict::PvWins);
        assert_eq!(verdict(&high, &low), Verdict::NativeWins);
        assert_eq!(verdict(&low, &low), Verdict::NoDifference);
        assert_eq!(verdict(&low[..5], &high), Verdict::TooFewRuns);
        let (drift, ahead) = ([10, 20, 30, 40, 50, 60], [15, 25, 35, 45, 55, 65]);
        assert_eq!(verdict(&drift, &ahead), Verdict::NoDifference, "pairs are not what is tested");
    }

    /// Wrong before (C7): each contrast was judged by itself, and of twenty between a lock and itself
    /// one was "ahead" or "won" more often than not.
    #[test]
    fn many_contrasts_of_the_same_are_not_won_by_chance() {
        let mut rng = SplitMix64::new(7);
        let mut rates = || -> Vec<u64> { (0..10).map(|_| 1000 + rng.below(1000) as u64).collect() };
        let found = (0..12).filter(|_| {
            let levels: Vec<_> = (0..20).map(|_| level(&rates(), &rates())).collect();
            let reports = LevelReport::all(&plan(10), &levels);
            let mut verdicts = reports.iter().map(|report| report.contrasts[0].verdict);
            verdicts.any(|verdict| verdict != Verdict::NoDifference)
        });
        // At most 5 % by design; each by itself, two of three would.
        let found = found.count();
        assert!(found <= 3, "{found} of 12 comparisons found what is not there");
    }

    #[test]
    fn more_contrasts_need_more_evidence() {
        // One pair of eight and eight is out of order: 4 of 12870 ways are as extreme.
        let (low, high) = ([1, 2, 3, 4, 5, 6, 7, 9], [8, 10, 11, 12, 13, 14, 15, 16]);
        let of = |levels: usize| {
            let same = level(&[5, 6, 7, 8, 5, 6, 7, 8], &[5, 6, 7, 8, 5, 6, 7, 8]);
            let mut all = vec![same; levels];
            all[0] = level(&low, &high);
            LevelReport::all(&plan(8), &all).remove(0).contrasts.remove(0)
        };
        let (alone, among) = (of(1), of(200));
        assert_eq!((alone.verdict, among.verdict), (Verdict::PvWins, Verdict::NoDifference));
        assert_eq!(alone.test.p, among.test.p);
        assert!((among.test.adjusted.unwrap() - 200.0 * among.test.p.unwrap()).abs() < 1e-9);
    }

    #[test]
    fn what_so_many_runs_can_never_tell_is_said() {
        let apart = || level(&[1, 2, 3, 4, 5, 6], &[11, 12, 13, 14, 15, 16]);
        let verdicts = |levels: usize| {
            LevelReport::all(&plan(6), &vec![apart(); levels])[0].contrasts[0].verdict
        };
        // Of 924 ways two are as extreme, which times 25 is more than 5 %.
        assert_eq!((verdicts(1), verdicts(25)), (Verdict::PvWins, Verdict::TooFewRuns));
        assert_eq!((least_runs(1), least_runs(25)), (6, 7));
    }

    #[test]
    fn a_level_of_known_samples() {
        let mut samples = level(&[100, 200], &[300, 800]);
        samples.runs[2].sample.halts = 50;
        samples.runs[2].sample.slow = Some(110);
        samples.runs[3].sample.violations = 2;
        let report = judged(&plan(2), samples);
        assert_eq!(report.overcommit, 1.5);
        assert!(!report.partial);
        let pv = &report.rows[1];
        assert_eq!((pv.halts, pv.slow, pv.violations), (25.0, Some(0.1), 2));
        assert_eq!(report.violations(), 2);
        let contrast = &report.contrasts[0];
        assert_eq!(contrast.ratio.unwrap().value, 550.0 / 150.0);
        assert_eq!(contrast.paired.unwrap().value, 3.5);
    }

    /// What a schedule did is divided by the time for which it was counted, which no other time
    /// shortens: so nothing can be wasted more than there is, and nothing has to be cut off.
    #[test]
    fn a_schedules_figures_are_over_the_time_they_were_counted_for() {
        use crate::sched::truth::Totals;
        let totals = Totals { lhp: 30, wasted_spin_ns: 2_250_000_000, ..Totals::default() };
        let measured = Measured { time: Nanos(1_500_000_000), totals, hits: None };
        let row = schedule_row([measured, measured].into_iter(), 2.0).unwrap();
        assert_eq!((row.lhp, row.wasted), (20.0, 0.75));
        assert!(schedule_row([Measured::default()].into_iter(), 2.0).is_none(), "of no time");
    }

    #[test]
    fn missing_runs_are_told() {
        let report = judged(&plan(2), level(&[100], &[]));
        assert!(report.partial && report.contrasts.is_empty());
        assert_eq!(report.rows.len(), 1);
        let report = judged(&plan(2), level(&[], &[100]));
        assert!(report.contrasts.is_empty(), "there is no baseline");
    }

    #[test]
    fn a_dead_baseline_has_no_ratio() {
        let report = judged(&plan(6), level(&[0; 6], &[5; 6]));
        let contrast = &report.contrasts[0];
        assert_eq!((contrast.ratio, contrast.paired), (None, None));
        assert_eq!(contrast.verdict, Verdict::PvWins);
        assert_eq!((report.rows[0].slow, report.rows[0].fairness), (None, None));
    }
}
