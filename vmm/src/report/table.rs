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
mod tests;
