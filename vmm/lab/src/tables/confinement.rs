//! The table and the JSON of `bench confinement`.

use std::fmt::Write;

use serde::Serialize;

use crate::bench::confinement::{ConfinementFigures, ConfinementPlan, SubjectPairs};
use report::si::ratio;
use study::{
    host::HostFacts,
    stats::{self, Estimate, Interval},
};

/// Width of the name column.
const NAME: usize = 36;

/// One line of the table. Times in nanoseconds.
#[derive(Debug, Serialize)]
struct ConfinementLine {
    what: String,
    pairs: usize,
    /// Median of the confined sides.
    confined: f64,
    /// Median of the others.
    bare: f64,
    /// Median over the pairs of confined by bare.
    ratio: f64,
    /// 95 % interval of that median.
    interval: Option<Interval>,
}

impl ConfinementLine {
    fn new(measured: &SubjectPairs) -> Option<Self> {
        let (confined, bare): (Vec<f64>, Vec<f64>) =
            measured.pairs.iter().map(|pair| (pair.confined, pair.bare)).unzip();
        let Estimate { value, interval } = super::by_rounds(&confined, &bare)?;
        Some(Self {
            what: measured.subject.name(),
            pairs: measured.pairs.len(),
            confined: stats::median(&confined)?,
            bare: stats::median(&bare)?,
            ratio: value,
            interval,
        })
    }
}

fn lines(figures: &ConfinementFigures) -> Vec<ConfinementLine> {
    figures.subjects.iter().filter_map(ConfinementLine::new).collect()
}

/// Three or four digits.
fn us(nanos: f64) -> String {
    let us = nanos / 1e3;
    let decimals = if us < 100.0 { 2 } else { 0 };
    format!("{us:.decimals$}")
}

/// The figures as text.
pub fn table(figures: &ConfinementFigures, plan: &ConfinementPlan, host: &HostFacts) -> String {
    let mut text = format!(
        "host    {}, {} KVM, Linux {}\n\
         method  {} pairs of each line, its sides in alternating order; calls {} s a side in one process, boots\n\
         \x20       a process a side; CPUs {}\n\
         times   in us, medians; ratio: the median of the pairs' ratios, confined by bare\n\
         bare    calls: threads with no limits at all; boots: --seccomp off\n",
        host.cpu,
        host.kvm,
        host.kernel,
        plan.runs,
        plan.duration.as_secs_f64(),
        plan.cpus,
    );
    text.push_str(&super::quota_note(host));
    if figures.interrupted {
        text.push_str("note    interrupted: there are fewer pairs\n");
    }
    let _ = writeln!(
        text,
        "\n  {:<NAME$}{:>10}{:>10}{:>9}{:^20}{:>6}",
        "", "confined", "bare", "ratio", "95 % of ratio", "N"
    );
    for line in lines(figures) {
        let interval = line.interval.map_or_else(
            || "-".into(),
            |interval| format!("{} .. {}", ratio(interval.low), ratio(interval.high)),
        );
        let _ = writeln!(
            text,
            "  {:<NAME$}{:>10}{:>10}{:>9}{interval:^20}{:>6}",
            line.what,
            us(line.confined),
            us(line.bare),
            ratio(line.ratio),
            line.pairs,
        );
    }
    text
}

#[derive(Serialize)]
struct ConfinementDocument<'a> {
    cpus: &'a [usize],
    runs: u32,
    seconds: f64,
    subjects: Vec<ConfinementLine>,
}

/// The figures as JSON.
pub fn json(
    figures: &ConfinementFigures,
    plan: &ConfinementPlan,
    host: &HostFacts,
) -> serde_json::Result<String> {
    let (cpus, runs, seconds) = (plan.cpus.cpus(), plan.runs, plan.duration.as_secs_f64());
    let lines = ConfinementDocument { cpus, runs, seconds, subjects: lines(figures) };
    super::document("confinement", host, !figures.interrupted, lines)
}
