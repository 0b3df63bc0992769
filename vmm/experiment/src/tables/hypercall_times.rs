//! The table and the JSON of `bench hypercalls`.

use std::{collections::BTreeMap, fmt::Write};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::bench::{
    hypercall_times::{CaseRounds, HyperCase, HyperFigures, HyperPlan, RoundFigures},
    thread_wakeup::{Placement, RawKind},
};
use base::{backend::PvBackend, plural::count};
use report::{columns::Columns, si::ratio};
use study::{
    host_facts::HostFacts,
    stats::{self, Estimate, Interval},
};

/// One line of the table. Times are in nanoseconds.
#[derive(Debug, Serialize)]
struct HypercallLine {
    backend: Option<&'static str>,
    what: String,
    samples: u64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
    /// Median of the rounds' medians.
    median: f64,
    /// 95 % interval of that median.
    interval: Option<Interval>,
    /// Returns from `KVM_RUN` per operation of vCPU 0.
    user_exits: Option<f64>,
    /// The rounds' medians, in order.
    medians: Vec<f64>,
    /// KVM's own counters per operation of vCPU 0.
    kvm: BTreeMap<String, f64>,
    #[serde(skip)]
    case: HyperCase,
}

impl HypercallLine {
    fn new(measured: &CaseRounds) -> Option<Self> {
        let mut histogram = Histogram::<u64>::new(3).ok()?;
        for sample in measured.rounds.iter().flat_map(|round| &round.samples) {
            histogram.record(*sample).ok()?;
        }
        let median_of = |samples: &[u64]| {
            stats::median(&samples.iter().map(|sample| *sample as f64).collect::<Vec<_>>())
        };
        let medians: Vec<f64> =
            measured.rounds.iter().filter_map(|round| median_of(&round.samples)).collect();
        let Estimate { value: median, interval } = stats::median_estimate(&medians)?;
        let sum = |count: fn(&RoundFigures) -> u64| {
            measured.rounds.iter().map(count).fold(0, u64::saturating_add)
        };
        let operations = sum(|round| round.operations).max(1) as f64;
        let exits = sum(|round| round.vmm.exits);
        let mut kvm: BTreeMap<String, f64> = BTreeMap::new();
        for (name, value) in measured.rounds.iter().flat_map(|round| &round.kvm) {
            *kvm.entry(name.clone()).or_default() += *value as f64 / operations;
        }
        Some(Self {
            backend: measured.case.backend().map(PvBackend::name),
            what: measured.case.name(),
            samples: histogram.len(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            median,
            interval,
            user_exits: measured.case.backend().map(|_| exits as f64 / operations),
            medians,
            kvm,
            case: measured.case,
        })
    }

    fn cells(&self) -> [String; 8] {
        let interval = self.interval.map_or_else(
            || "-".into(),
            |interval| format!("{} .. {}", us(interval.low), us(interval.high)),
        );
        let exits = self.user_exits.map_or_else(|| "-".into(), |exits| format!("{exits:.3}"));
        let [p50, p99, p999, max] =
            [self.p50, self.p99, self.p999, self.max].map(|nanos| us(nanos as f64));
        [self.what.clone(), p50, p99, p999, max, interval, exits, self.samples.to_string()]
    }
}

fn us(nanos: f64) -> String {
    let us = nanos / 1e3;
    match us {
        us if us < 9.995 => format!("{us:.2}"),
        us if us < 999.5 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// A ratio of two lines.
#[derive(Debug, Serialize)]
struct Contrast {
    what: String,
    value: f64,
    /// 95 % interval, from the rounds, each of which measured both.
    interval: Option<Interval>,
}

impl Contrast {
    /// Computes `values` over `base`, round by round.
    fn new(what: String, values: &[f64], base: &[f64]) -> Option<Self> {
        let Estimate { value, interval } = super::by_rounds(values, base)?;
        Some(Self { what, value, interval })
    }

    fn text(&self) -> String {
        let within = self.interval.map_or_else(String::new, |interval| {
            format!(" (95 %: {} .. {})", ratio(interval.low), ratio(interval.high))
        });
        format!("  {}: {}{within}", self.what, ratio(self.value))
    }
}

/// Returns the ratios below the table.
fn contrasts(lines: &[HypercallLine]) -> Vec<Contrast> {
    let medians = |case: HyperCase| {
        lines.iter().find(|line| line.case == case).map_or(&[][..], |line| &line.medians)
    };
    let mut contrasts = Vec::new();
    let futex = medians(HyperCase::Raw(RawKind::Futex, Placement::SameCpu));
    let run = medians(HyperCase::KickToRun(PvBackend::Vmm, Placement::SameCpu));
    // A lower bound of the path: the kicker's exits for its kick and its halt, as measured without a
    // vCPU to wake, and one and a half futex handoffs.
    let exits = medians(HyperCase::KickRunning(PvBackend::Vmm))
        .iter()
        .zip(medians(HyperCase::PendingHalt(PvBackend::Vmm)))
        .map(|(kick, halt)| kick + halt);
    let lower_bound: Vec<f64> =
        futex.iter().zip(exits).map(|(futex, exits)| 1.5 * futex + exits).collect();
    contrasts.extend(Contrast::new(
        "vmm, kick -> run on the same CPU, over 1.5 futex handoffs and the exits of kick and halt"
            .into(),
        run,
        &lower_bound,
    ));
    for placement in [Placement::SameCpu, Placement::OtherCpu] {
        let doorbell = HyperCase::KickToRun(PvBackend::Doorbell, placement);
        let kvm = HyperCase::KickToRun(PvBackend::Kvm, placement);
        let what = format!("doorbell over kvm, {}", doorbell.name());
        contrasts.extend(Contrast::new(what, medians(doorbell), medians(kvm)));
    }
    contrasts
}

/// Formats the complete report as text.
pub fn table(figures: &HyperFigures, plan: &HyperPlan, host: &HostFacts) -> String {
    let lines: Vec<HypercallLine> = figures.cases.iter().filter_map(HypercallLine::new).collect();
    let mut text = format!(
        "host    {}, {} KVM, Linux {}\n\
         method  {}, each with every case once in a seeded random order, {} s per case; CPUs {}\n\
         times   in us; of all samples, and the median of the rounds' medians with its interval\n\
         threads SCHED_BATCH: none preempts another at a wakeup\n\
         compare vmm with two threads of the host that wake each other (futex, eventfd); doorbell\n\
         \x20       with kvm\n",
        host.cpu,
        host.kvm,
        host.kernel,
        count(plan.rounds, "round"),
        plan.duration.as_secs_f64(),
        plan.cpus,
    );
    text.push_str(&super::quota_note(host));
    if figures.interrupted {
        text.push_str("note    interrupted: some cases have fewer rounds\n");
    }
    let mut columns = Columns::new(1..usize::MAX);
    columns.row(["", "p50", "p99", "p99.9", "max", "95 % of median", "exits", "samples"]);
    lines.iter().for_each(|line| columns.row(line.cells()));
    let mut rows = columns.lines(2).into_iter();
    let _ = writeln!(text, "\n  {}", rows.next().unwrap_or_default());
    let mut backend = None;
    for (line, row) in lines.iter().zip(rows) {
        if line.backend != backend {
            backend = line.backend;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", backend.unwrap_or_default());
        }
        let _ = writeln!(text, "  {row}");
    }
    text.push('\n');
    for contrast in contrasts(&lines) {
        let _ = writeln!(text, "{}", contrast.text());
    }
    text
}

#[derive(Serialize)]
struct HypercallDocument<'a> {
    cpus: &'a [usize],
    rounds: u32,
    seconds: f64,
    seed: u64,
    cases: Vec<HypercallLine>,
    contrasts: Vec<Contrast>,
}

/// Returns the complete report as JSON.
pub fn json(
    figures: &HyperFigures,
    plan: &HyperPlan,
    host: &HostFacts,
) -> serde_json::Result<String> {
    let cases: Vec<HypercallLine> = figures.cases.iter().filter_map(HypercallLine::new).collect();
    let lines = HypercallDocument {
        cpus: plan.cpus.cpus(),
        rounds: plan.rounds,
        seconds: plan.duration.as_secs_f64(),
        seed: plan.seed,
        contrasts: contrasts(&cases),
        cases,
    };
    super::document("hypercalls", host, !figures.interrupted, lines)
}
