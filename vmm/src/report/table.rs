//! A comparison as text: a heading, a block a level.

use std::fmt::Write;

use super::si::{percent, ratio, si};
use crate::{
    lab::{
        LevelReport,
        analysis::{Contrast, Row, Verdict},
        host::HostFacts,
        stats::{ENOUGH, Estimate},
    },
    units::CpuList,
    vm::PvBackend,
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

/// Runs and host in three lines, and the columns' names.
pub fn heading(heading: &Heading) -> String {
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
         {halts:>8}{kicks:>8}{slow:>8}{even:>9}{jain:>6}\n",
        work = heading.work,
        method = heading.method,
        blank = "",
        acq = "acquisitions/s",
        median = "median,",
        w = LOCK,
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
        slow = "slow",
        even = "min/max",
        jain = "Jain",
    )
}

/// Width of the column of lock names.
const LOCK: usize = 9;

/// One level: a title, a row a backend, a line a contrast.
pub fn level(report: &LevelReport, cpus: &CpuList) -> String {
    let mut text = String::new();
    let vcpus = report.vcpus.get();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{vcpus} vCPU{} on CPU{} {cpus}: {}{}",
        plural(vcpus as usize),
        plural(cpus.cpus().len()),
        ratio(report.overcommit),
        if report.partial { " (partial: interrupted)" } else { "" }
    );
    for row in &report.rows {
        let _ = writeln!(text, "{}", line(row));
    }
    for contrast in &report.contrasts {
        let _ = writeln!(text, "  {}", ratios(contrast));
        let _ = writeln!(text, "  => {}", conclusion(contrast));
    }
    if report.violations() > 0 {
        let _ = writeln!(
            text,
            "  BROKEN: mutual exclusion failed {} times; the figures mean nothing",
            report.violations()
        );
    }
    text
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn line(row: &Row) -> String {
    let dash = || "-".to_owned();
    let rate = &row.rate;
    let within = rate
        .median
        .interval
        .map_or_else(dash, |within| format!("{:>6} .. {:<6}", si(within.low), si(within.high)));
    format!(
        "  {:<w$}{:>4}{:>8}{:>8}{:>8}{:>8}{:>8}{within:^16}{:>8}{:>8}{:>8}{:>9}{:>6}",
        label(row.backend),
        rate.count,
        si(rate.min),
        si(rate.max),
        si(rate.median.value),
        si(rate.mean),
        rate.stddev.map_or_else(dash, si),
        si(row.halts),
        si(row.kicks),
        row.slow.map_or_else(dash, percent),
        row.fairness.map_or_else(dash, |fairness| format!("{:.3}", fairness.min_over_max)),
        row.fairness.map_or_else(dash, |fairness| format!("{:.2}", fairness.jain)),
        w = LOCK - 2,
    )
}

/// A lock as its users call it.
pub const fn label(backend: PvBackend) -> &'static str {
    match backend {
        PvBackend::Off => "native",
        PvBackend::Vmm => "pv",
        PvBackend::Kvm => "pv-kvm",
    }
}

/// What a contrast says, in words that its intervals bear out.
fn conclusion(contrast: &Contrast) -> String {
    let pv = label(contrast.backend);
    let times = contrast.ratio.map_or_else(String::new, |times| format!(" {}", ratio(times.value)));
    match contrast.verdict {
        Verdict::PvWins => format!("{pv} beats native{times}: intervals apart"),
        Verdict::NativeWins => format!("native beats {pv}: intervals apart"),
        Verdict::PvAhead => {
            format!("{pv} is ahead of native in pairs, though the medians' intervals overlap")
        }
        Verdict::NativeAhead => {
            format!("native is ahead of {pv} in pairs, though the medians' intervals overlap")
        }
        Verdict::NoDifference => {
            format!("no difference seen between {pv} and native: intervals overlap")
        }
        Verdict::TooFewRuns => format!("too few runs to tell: {ENOUGH} of each are the least"),
    }
}

/// The ratios behind a conclusion, with their intervals.
fn ratios(contrast: &Contrast) -> String {
    let pv = label(contrast.backend);
    let parts: Vec<String> = [("medians", contrast.ratio), ("pairs", contrast.paired)]
        .into_iter()
        .filter_map(|(by, estimate)| Some(format!("{} by {by}", with_interval(&estimate?))))
        .collect();
    match parts.is_empty() {
        true => format!("{pv}/native has no ratio: native did nothing"),
        false => format!("{pv}/native {}", parts.join(", ")),
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
    use super::*;
    use crate::{
        lab::stats::{Fairness, Interval, Summary},
        units::VcpuCount,
    };

    fn row(backend: PvBackend, median: f64) -> Row {
        let interval = Interval { low: median * 0.9, high: median * 1.1 };
        let median = Estimate { value: median, interval: Some(interval) };
        let (min, max, mean) = (interval.low, interval.high, median.value);
        Row {
            backend,
            rate: Summary { count: 10, min, max, median, mean, stddev: Some(12_345.0) },
            halts: 1234.0,
            kicks: 999_999.0,
            slow: Some(0.999),
            fairness: Some(Fairness { min_over_max: 0.5, jain: 0.987 }),
            violations: 0,
        }
    }

    fn report() -> LevelReport {
        let interval = Some(Interval { low: 30.0, high: 60.0 });
        let ratio = Some(Estimate { value: 48.2, interval });
        let backend = PvBackend::Vmm;
        LevelReport {
            vcpus: VcpuCount::try_from(3).unwrap(),
            overcommit: 1.5,
            rows: vec![row(PvBackend::Off, 7_800.0), row(backend, 123_456_789.0)],
            contrasts: vec![Contrast { backend, ratio, paired: ratio, verdict: Verdict::PvWins }],
            partial: false,
        }
    }

    fn facts() -> HostFacts {
        HostFacts {
            cpu: "AMD EPYC".into(),
            kvm: "software",
            kernel: "6.18".into(),
            cpus_allowed: "0-1".into(),
            load_average: vec![0.5],
            busy: Some(0.25),
        }
    }

    #[test]
    fn rows_line_up_under_the_columns_within_110_characters() {
        let heading =
            heading(&Heading { work: "work".into(), method: "method".into(), host: facts() });
        assert!(heading.contains("note    others took 25.0 % of these CPUs"), "{heading}");
        let columns = heading.lines().last().unwrap();
        let text = level(&report(), &"0-1".parse().unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "3 vCPUs on CPUs 0-1: 1.50x");
        assert_eq!(lines[1].chars().count(), columns.chars().count());
        assert_eq!(lines[2].chars().count(), columns.chars().count());
        assert!(text.lines().chain(heading.lines()).all(|line| line.chars().count() <= 110));
    }

    #[test]
    fn conclusions_say_what_the_intervals_bear_out() {
        let mut contrast = report().contrasts.remove(0);
        assert_eq!(
            ratios(&contrast),
            "pv/native 48.2x (30.0x .. 60.0x) by medians, 48.2x (30.0x .. 60.0x) by pairs"
        );
        assert_eq!(conclusion(&contrast), "pv beats native 48.2x: intervals apart");
        contrast.verdict = Verdict::NoDifference;
        assert!(conclusion(&contrast).starts_with("no difference seen between pv and native"));
        (contrast.verdict, contrast.ratio, contrast.paired) = (Verdict::PvWins, None, None);
        assert_eq!(conclusion(&contrast), "pv beats native: intervals apart");
        assert_eq!(ratios(&contrast), "pv/native has no ratio: native did nothing");
    }

    #[test]
    fn broken_exclusion_and_missing_runs_are_loud() {
        let mut report = report();
        report.rows[1].violations = 3;
        report.partial = true;
        let text = level(&report, &"1".parse().unwrap());
        assert!(text.contains("BROKEN: mutual exclusion failed 3 times"));
        assert!(text.starts_with("3 vCPUs on CPU 1: 1.50x (partial: interrupted)"));
    }
}
