//! Tables of made-up levels.

use std::time::Duration;

use super::*;
use crate::{
    guest::handoff::HandoffSpec,
    lab::{
        analysis::ScheduleRow,
        stats::{self, Fairness, Interval, Summary},
    },
    sched::PolicySpec,
    units::{Nanos, VcpuCount},
    vm::PvBackend,
};

fn row(backend: PvBackend, median: f64) -> Row {
    let interval = Interval { low: median * 0.9, high: median * 1.1 };
    let median = Estimate { value: median, interval: Some(interval) };
    let (min, max, mean) = (interval.low, interval.high, median.value);
    Row {
        contender: under(PolicySpec::host(), backend),
        rate: Summary { count: 10, min, max, median, mean, stddev: Some(12_345.0) },
        halts: 1234.0,
        kicks: 999_999.0,
        slow: Some(0.999),
        long_waits: None,
        fairness: Some(Fairness { min_over_max: 0.5, jain: 0.987 }),
        schedule: None,
        violations: 0,
        disorder: 0,
        faults: None,
        work: None,
        latencies: None,
        open_waits: 0,
    }
}

fn under(policy: PolicySpec, backend: PvBackend) -> Contender {
    Contender { policy, system: None, backend, handoff: HandoffSpec::NONE }
}

fn plan(policies: &[PolicySpec]) -> Plan {
    Plan {
        levels: Vec::new(),
        cpus: "0-1".parse().unwrap(),
        runs: 10,
        warm_up: Duration::ZERO,
        duration: Duration::ZERO,
        contenders: Contender::all(
            policies,
            &[PvBackend::Off, PvBackend::Vmm],
            &[HandoffSpec::NONE],
        ),
        vms: 1,
        slots: 2,
        slice: Nanos::millis(4),
        recording: None,
        record: false,
        trace: false,
        seed: 1,
        faults: None,
    }
}

fn report() -> LevelReport {
    let interval = Some(Interval { low: 30.0, high: 60.0 });
    let ratio = Some(Estimate { value: 48.2, interval });
    let (backend, verdict) = (PvBackend::Vmm, Verdict::PvWins);
    let test = stats::Verdict { p: Some(0.0001), adjusted: Some(0.002), significant: true };
    let contender = under(PolicySpec::host(), backend);
    let against = under(PolicySpec::host(), PvBackend::Off);
    LevelReport {
        vcpus: VcpuCount::try_from(3).unwrap(),
        overcommit: 1.5,
        rows: vec![row(PvBackend::Off, 7_800.0), row(backend, 123_456_789.0)],
        contrasts: vec![Contrast { contender, against, ratio, paired: ratio, test, verdict }],
        partial: false,
    }
}

fn facts() -> HostFacts {
    HostFacts {
        cpu: "AMD EPYC".into(),
        kvm: "software".into(),
        kernel: "6.18".into(),
        cpus_allowed: "0-1".into(),
        load_average: vec![0.5],
        busy: Some(0.25),
        ..HostFacts::default()
    }
}

#[test]
fn rows_line_up_under_the_columns_within_110_characters() {
    let heading = heading(
        &Heading { work: "work".into(), method: "method".into(), host: facts() },
        Columns::of(&plan(&[PolicySpec::host()])),
    );
    assert!(heading.contains("note    others took 25.0 % of these CPUs"), "{heading}");
    let columns = heading.lines().last().unwrap();
    let text = level(&report(), &plan(&[PolicySpec::host()]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "3 vCPUs on CPUs 0-1: 1.50x");
    assert_eq!(lines[1].chars().count(), columns.chars().count());
    assert_eq!(lines[2].chars().count(), columns.chars().count());
    assert!(text.lines().chain(heading.lines()).all(|line| line.chars().count() <= 110));
}

#[test]
fn conclusions_say_what_the_test_bears_out() {
    let all = conclusions(&[report(), report()]);
    assert!(all.starts_with("What differs? (2 contrasts"), "{all}");
    assert_eq!(all.lines().nth(1), Some("  3 vCPUs: pv beats native 48.2x (p = 0.0020)"));
    assert_eq!(conclusions(&[]), "");

    let mut contrast = report().contrasts.remove(0);
    assert_eq!(
        ratios(&contrast),
        "pv/native 48.2x (30.0x .. 60.0x) by medians, 48.2x (30.0x .. 60.0x) by pairs"
    );
    assert_eq!(conclusion(&contrast, 20), "pv beats native 48.2x (p = 0.0020)");
    contrast.verdict = Verdict::NoDifference;
    assert!(conclusion(&contrast, 20).starts_with("no difference seen between pv and native"));
    contrast.verdict = Verdict::TooFewRuns;
    let few = "too few runs to tell: 7 of each are the least";
    assert_eq!(conclusion(&contrast, 25), few);
    (contrast.verdict, contrast.ratio, contrast.paired) = (Verdict::PvWins, None, None);
    assert_eq!(conclusion(&contrast, 20), "pv beats native (p = 0.0020)");
    assert_eq!(ratios(&contrast), "pv/native has no ratio: native did nothing");
}

#[test]
fn long_waits_of_all_locks_are_not_called_slow_acquisitions() {
    let mut report = report();
    (report.rows[1].slow, report.rows[1].long_waits) = (None, Some(1500.0));
    let text = level(&report, &plan(&[PolicySpec::host()]));
    assert!(text.contains("  pv: 1.50k waits/s for any lock used up the threshold\n"), "{text}");
}

#[test]
fn broken_exclusion_and_missing_runs_are_loud() {
    let mut report = report();
    report.rows[1].violations = 3;
    report.partial = true;
    let text = level(&report, &plan(&[PolicySpec::host()]));
    assert!(text.contains("BROKEN: mutual exclusion failed 3 times"));
    assert!(text.starts_with("3 vCPUs on CPUs 0-1: 1.50x (partial: interrupted)"));
}

#[test]
fn scheduled_rows_show_what_preemptions_hit() {
    let policy: PolicySpec = "lhp:10,20ms".parse().unwrap();
    let plan = plan(std::slice::from_ref(&policy));
    let mut report = report();
    for row in &mut report.rows {
        row.contender.policy = policy.clone();
        let hits = Some(Hits { hits: 9, misses: 91 });
        row.schedule =
            Some(ScheduleRow { lhp: 9.5, lwp: 0.0, entering: 0.25, wasted: 0.123, hits });
    }
    report.contrasts[0].contender.policy = policy;
    let heading = heading(
        &Heading { work: "work".into(), method: "method".into(), host: facts() },
        Columns::of(&plan),
    );
    let text = level(&report, &plan);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "3 vCPUs on 2 slots: 1.50x");
    let columns = heading.lines().last().unwrap();
    assert_eq!(lines[1].chars().count(), columns.chars().count());
    assert!(lines[1].contains("12.3 %"), "{text}");
    assert!(
        text.contains("lhp:10,20ms native: 9 preemptions, all of what was aimed at; 100 looks")
    );
    assert!(text.contains("lhp:10,20ms: pv/native 48.2x"));
    let bound = "lhp:10,20ms native: LHP/s and LWP/s may be 0.250 more, both together\n";
    assert!(text.contains(bound), "{text}");
}
