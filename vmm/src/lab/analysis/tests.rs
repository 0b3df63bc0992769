//! Levels of known samples, and what is concluded from them.

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
            .map(|(rate, round)| Run { contender: contender.clone(), round, sample: sample(*rate) })
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
    let verdicts =
        |levels: usize| LevelReport::all(&plan(6), &vec![apart(); levels])[0].contrasts[0].verdict;
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
    use crate::sched::accounting::Totals;
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
