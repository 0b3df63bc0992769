//! A comparison as text: a heading, a block a level.

use std::fmt::Write;

use super::{
    columns::Columns,
    faults::in_a_line,
    si::{percent, ratio, si},
    work,
};
use crate::{
    lab::{
        Contender, LevelReport, Plan,
        analysis::{Contrast, Row, Verdict, least_runs},
        host::HostFacts,
        stats::Estimate,
    },
    report::study::words::p as probability,
    sched::policy::Hits,
};

/// What a table is of.
#[derive(Debug, Clone)]
pub struct Heading {
    /// The guest and its work, in words.
    pub work: String,
    /// How it is measured, in words.
    pub method: String,
    /// On what.
    pub host: HostFacts,
}

/// Share of the CPUs' time in others' hands that is worth a word.
const BUSY: f64 = 0.1;

pub(super) fn dash() -> String {
    "-".to_owned()
}

/// Runs and host in three lines, and the columns' names.
pub fn heading(heading: &Heading, columns: Columns) -> String {
    let HostFacts { cpu, kvm, kernel, load_average, .. } = &heading.host;
    let load = load_average.first().map(|load| format!(", load {load:.2}")).unwrap_or_default();
    let busy = match heading.host.busy {
        Some(busy) if busy >= BUSY => format!(
            "note    others took {} of these CPUs just before: the vCPUs get less than it says\n",
            percent(busy)
        ),
        _ => String::new(),
    };
    format!(
        "host    {cpu}, {kvm} KVM, Linux {kernel}{load}\n\
         guest   {work}\n\
         method  {method}\n\
         {busy}\n\
         {blank:>w$}{acq:^43}{median:^15}\n\
         {lock:<w$}{n:>4}{min:>8}{max:>8}{med:>8}{avg:>8}{dev:>8}{interval:^16}\
         {halts:>8}{kicks:>8}{tail}\n",
        work = heading.work,
        method = heading.method,
        blank = "",
        acq = "acquisitions/s",
        median = "median,",
        w = columns.names(),
        lock = "lock",
        n = "N",
        min = "Min",
        max = "Max",
        med = "Median",
        avg = "Avg",
        dev = "Stddev",
        interval = "95 % interval",
        halts = "halts/s",
        kicks = "kicks/s",
        tail = columns.tail(),
    )
}

/// One level: a title, a row a contender, a line a contrast.
pub fn level(report: &LevelReport, plan: &Plan) -> String {
    let columns = Columns::of(plan);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", title(report, plan, columns));
    for row in &report.rows {
        let _ = writeln!(text, "{}", line(row, columns));
    }
    for row in &report.rows {
        if let Some(hits) = row.schedule.and_then(|schedule| schedule.hits) {
            let _ = writeln!(text, "  {}", aimed(&row.contender, hits));
        }
    }
    for row in &report.rows {
        if let Some(most) = row.schedule.map(|its| its.entering).filter(|most| *most > 0.0) {
            let bound = format!("LHP/s and LWP/s may be {} more, both together", si(most));
            let _ = writeln!(text, "  {}: {bound}", label(&row.contender));
        }
    }
    for row in &report.rows {
        if let Some(waits) = row.long_waits {
            let waits = format!("{} waits/s for any lock used up the threshold", si(waits));
            let _ = writeln!(text, "  {}: {waits}", label(&row.contender));
        }
    }
    for row in &report.rows {
        if let Some(faults) = &row.faults {
            let _ = writeln!(text, "  {}: {}", label(&row.contender), in_a_line(faults));
        }
    }
    for line in report.rows.iter().flat_map(|row| work::lines(row, &label(&row.contender))) {
        let _ = writeln!(text, "  {line}");
    }
    for contrast in &report.contrasts {
        let _ = writeln!(text, "  {}", ratios(contrast));
    }
    if report.violations() > 0 {
        let _ = writeln!(
            text,
            "  BROKEN: mutual exclusion failed {} times; the figures mean nothing",
            report.violations()
        );
    }
    if report.disorder() > 0 {
        let _ = writeln!(text, "  BROKEN: {} tickets were served out of order", report.disorder());
    }
    text
}

fn title(report: &LevelReport, plan: &Plan, columns: Columns) -> String {
    let vcpus = report.vcpus.get();
    let machines = if plan.vms > 1 { format!("{} machines of ", plan.vms) } else { String::new() };
    let place = match columns.are_scheduled() {
        false => format!("CPU{} {}", plural(plan.cpus.cpus().len()), plan.cpus),
        true => format!("{} slot{}", plan.slots, plural(plan.slots)),
    };
    format!(
        "{machines}{vcpus} vCPU{} on {place}: {}{}",
        plural(vcpus as usize),
        ratio(report.overcommit),
        if report.partial { " (partial: interrupted)" } else { "" }
    )
}

fn aimed(contender: &Contender, Hits { hits, misses }: Hits) -> String {
    let looks = hits + misses;
    format!(
        "{}: {hits} preemptions, all of what was aimed at; {looks} looks for them",
        label(contender)
    )
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn line(row: &Row, columns: Columns) -> String {
    let rate = &row.rate;
    let within = rate
        .median
        .interval
        .map_or_else(dash, |within| format!("{:>6} .. {:<6}", si(within.low), si(within.high)));
    format!(
        "  {:<w$}{:>4}{:>8}{:>8}{:>8}{:>8}{:>8}{within:^16}{:>8}{:>8}{}",
        label(&row.contender),
        rate.count,
        si(rate.min),
        si(rate.max),
        si(rate.median.value),
        si(rate.mean),
        rate.stddev.map_or_else(dash, si),
        si(row.halts),
        si(row.kicks),
        columns.tail_of(row),
        w = columns.names() - 2,
    )
}

/// A contender as the table calls it.
pub fn label(contender: &Contender) -> String {
    match contender.policy.is_host() {
        true => contender.lock(),
        false => format!("{} {}", contender.policy, contender.lock()),
    }
}

/// What all contrasts of a comparison come to, judged together; nothing if there are none.
pub fn conclusions(levels: &[LevelReport]) -> String {
    let count: usize = levels.iter().map(|level| level.contrasts.len()).sum();
    let mut text = match count {
        0 => return String::new(),
        1 => "Does it differ? (rank-sum test, p below 0.05)\n".to_owned(),
        _ => format!(
            "What differs? ({count} contrasts: rank-sum tests, p corrected by Holm, below 0.05)\n"
        ),
    };
    for level in levels {
        for contrast in &level.contrasts {
            let vcpus = level.vcpus.get();
            let _ = writeln!(
                text,
                "  {vcpus} vCPU{}: {}{}",
                plural(vcpus as usize),
                under(&contrast.contender),
                conclusion(contrast, count)
            );
        }
    }
    text
}

/// What a contrast, one of so many, says in words.
fn conclusion(contrast: &Contrast, count: usize) -> String {
    let (pv, native) = (contrast.contender.lock(), contrast.against.lock());
    let times = contrast.ratio.map_or_else(String::new, |times| format!(" {}", ratio(times.value)));
    let p = contrast
        .test
        .adjusted
        .map_or_else(String::new, |_| format!(" (p {})", probability(contrast.test.adjusted)));
    match contrast.verdict {
        Verdict::PvWins => format!("{pv} beats {native}{times}{p}"),
        Verdict::NativeWins => format!("{native} beats {pv}{p}"),
        Verdict::NoDifference => format!("no difference seen between {pv} and {native}{p}"),
        Verdict::TooFewRuns => {
            format!("too few runs to tell: {} of each are the least", least_runs(count))
        }
    }
}

fn under(contender: &Contender) -> String {
    let policy = &contender.policy;
    if policy.is_host() { String::new() } else { format!("{policy}: ") }
}

/// The ratios behind a conclusion, with their intervals.
fn ratios(contrast: &Contrast) -> String {
    let (pv, native) = (contrast.contender.lock(), contrast.against.lock());
    let under = under(&contrast.contender);
    let parts: Vec<String> = [("medians", contrast.ratio), ("pairs", contrast.paired)]
        .into_iter()
        .filter_map(|(by, estimate)| Some(format!("{} by {by}", with_interval(&estimate?))))
        .collect();
    match parts.is_empty() {
        true => format!("{under}{pv}/{native} has no ratio: {native} did nothing"),
        false => format!("{under}{pv}/{native} {}", parts.join(", ")),
    }
}

fn with_interval(estimate: &Estimate) -> String {
    let value = ratio(estimate.value);
    match estimate.interval {
        Some(interval) => format!("{value} ({} .. {})", ratio(interval.low), ratio(interval.high)),
        None => value,
    }
}

#[cfg(test)]
mod tests {
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
        assert!(
            text.contains("  pv: 1.50k waits/s for any lock used up the threshold\n"),
            "{text}"
        );
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
}
