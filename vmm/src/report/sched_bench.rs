//! The table and the JSON of `bench sched`.

use std::fmt::Write;

use serde::Serialize;

use super::si::{percent, ratio, si};
use crate::{
    lab::{
        Sample,
        host::HostFacts,
        sched_bench::{Case, CaseSamples, HostCosts, SchedFigures, SchedPlan},
        stats::{self, Estimate, Interval},
    },
    sched::{
        driver::Latency,
        log::TurnEnd,
        truth::{Preemption, Totals},
    },
    units::Nanos,
    vm::PvBackend,
};

/// Version of the JSON document's form.
const FORMAT: u32 = 1;

/// A case beside its baseline.
#[derive(Debug, Serialize)]
struct Kept {
    #[serde(flatten)]
    case: Case,
    overcommit: f64,
    runs: usize,
    /// Acquisitions a second.
    rate: Option<Estimate>,
    /// Of the baseline's of the same lock: the ratio of medians.
    kept: Option<Estimate>,
    /// The median run's fairness.
    jain: Option<f64>,
    halts: f64,
    lhp: f64,
    lwp: f64,
    yields: f64,
    forced: f64,
    /// Share of the slots' time.
    wasted: f64,
}

fn rates(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(Sample::rate).collect()
}

fn kept(of: &CaseSamples, base: Option<&CaseSamples>, slots: f64, seed: u64) -> Kept {
    let samples = &of.samples;
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let total = |figure: fn(&Totals) -> u64| {
        let schedules = samples.iter().filter_map(|sample| sample.schedule.as_ref());
        schedules.map(|schedule| figure(&schedule.measured)).sum::<u64>() as f64
    };
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
        lhp: total(|totals| totals.lhp) / seconds,
        lwp: total(|totals| totals.lwp) / seconds,
        yields: total(|totals| totals.yields) / seconds,
        forced: total(|totals| totals.forced) / seconds,
        // It is in the account at a stop, which may be of a wait from before the measurement.
        wasted: (total(|totals| totals.wasted_spin_ns) / 1e9 / (seconds * slots)).min(1.0),
    }
}

/// What deliberate preemptions did.
#[derive(Debug, Serialize)]
struct Injected {
    #[serde(flatten)]
    case: Case,
    /// Preemptions made.
    made: usize,
    /// Of them, verified after the stop to be of what was aimed at.
    on_target: usize,
    /// Stops that found something else, and let it go on.
    other_looks: u64,
    /// How long the vCPU was off, in nanoseconds.
    off_ns: Option<stats::Quartiles>,
    /// How long others span for its lock meanwhile, in nanoseconds.
    spun_ns: Option<stats::Quartiles>,
}

fn injected(of: &CaseSamples) -> Injected {
    let schedules = || of.samples.iter().filter_map(|sample| sample.schedule.as_ref());
    let made: Vec<&Preemption> = schedules()
        .flat_map(|schedule| &schedule.whole.preemptions)
        .filter(|preemption| preemption.end == TurnEnd::Injected && preemption.off.is_some())
        .collect();
    let aimed_at_holders = of.case.policy.name() == "lhp";
    let on_target = made.iter().filter(|preemption| match aimed_at_holders {
        true => preemption.look.doing.is_holder(),
        false => preemption.look.doing.is_next(),
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
struct Itself {
    /// Each run's.
    lateness: Vec<Latency>,
    handover: Vec<Latency>,
    futex_ns: Option<f64>,
    exit_ns: Option<f64>,
}

fn itself(figures: &SchedFigures) -> Itself {
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

/// Everything as text.
pub fn table(figures: &SchedFigures, plan: &SchedPlan, host: &HostFacts, work: &str) -> String {
    let mut text = format!(
        "host    {}, {} KVM, Linux {}\n\
         guest   {work}\n\
         method  {} rounds, each of every case once in a seeded random order, {} s a case; \
         slots on CPUs {}, turns of {}, seed {}\n",
        host.cpu,
        host.kvm,
        host.kernel,
        plan.rounds,
        plan.duration.as_secs_f64(),
        plan.cpus,
        plan.slice,
        plan.seed,
    );
    if figures.interrupted {
        text.push_str("note    interrupted: some cases have fewer runs\n");
    }
    text.push_str(&throughput(figures, plan));
    text.push_str(&deliberate(figures));
    text.push_str(&schedule_itself(&itself(figures)));
    text
}

fn all_kept(figures: &SchedFigures, plan: &SchedPlan) -> Vec<Kept> {
    let slots = plan.cpus.cpus().len() as f64;
    let base_of = |of: &CaseSamples| {
        figures.baselines.iter().find(|base| base.case.backend == of.case.backend)
    };
    let all = figures.baselines.iter().chain(&figures.policies);
    all.map(|of| kept(of, base_of(of), slots, plan.seed)).collect()
}

fn throughput(figures: &SchedFigures, plan: &SchedPlan) -> String {
    let mut text = format!(
        "\nThroughput, as a share of what the same lock gives at 1x\n\
         {:<32}{:>4}{:>8}  {:^16}{:>8}  {:^20}{:>6}{:>8}{:>8}{:>8}{:>9}{:>8}\n",
        "vCPUs, policy, lock",
        "N",
        "Median",
        "95 % interval",
        "of 1x",
        "95 % interval",
        "Jain",
        "LHP/s",
        "LWP/s",
        "yield/s",
        "forced/s",
        "wasted"
    );
    let mut last = 0.0;
    for kept in all_kept(figures, plan) {
        if kept.overcommit != last {
            last = kept.overcommit;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{} overcommit", ratio(last));
        }
        let _ = writeln!(text, "{}", throughput_line(&kept));
    }
    text
}

fn name(case: &Case) -> String {
    let lock = if case.backend == PvBackend::Off { "native" } else { "pv" };
    let machines = if case.vms > 1 { format!("{} x ", case.vms) } else { String::new() };
    format!("{machines}{} {} {lock}", case.vcpus, case.policy)
}

fn throughput_line(kept: &Kept) -> String {
    let dash = || "-".to_owned();
    let of = |estimate: &Option<Estimate>, show: fn(f64) -> String, width: usize| {
        let value = estimate.map_or_else(dash, |estimate| show(estimate.value));
        let interval = estimate.and_then(|estimate| estimate.interval);
        let within = interval.map_or_else(dash, |Interval { low, high }| {
            format!("{:>width$} .. {:<width$}", show(low), show(high))
        });
        (value, within)
    };
    let (rate, rate_within) = of(&kept.rate, si, 6);
    let (share, share_within) = of(&kept.kept, percent, 8);
    format!(
        "  {:<30}{:>4}{rate:>8}  {rate_within:^16}{share:>8}  {share_within:^20}{:>6}{:>8}{:>8}{:>8}{:>9}{:>8}",
        name(&kept.case),
        kept.runs,
        kept.jain.map_or_else(dash, |jain| format!("{jain:.2}")),
        si(kept.lhp),
        si(kept.lwp),
        si(kept.yields),
        si(kept.forced),
        percent(kept.wasted),
    )
}

fn deliberate(figures: &SchedFigures) -> String {
    let mut text = format!(
        "\nDeliberate preemptions at 1x: what one costs, by telemetry\n\
         {:<32}{:>8}{:>11}{:>13}{:>14}{:>26}\n",
        "vCPUs, policy, lock",
        "made",
        "on target",
        "other looks",
        "off, median",
        "others span, 1/4 .. 3/4"
    );
    for of in &figures.injected {
        let injected = injected(of);
        let millis = |nanos: f64| format!("{:.3} ms", nanos / 1e6);
        let off = injected.off_ns.map_or_else(|| "-".into(), |off| millis(off.median));
        let spun = injected.spun_ns.map_or_else(
            || "-".into(),
            |spun| format!("{} .. {}", millis(spun.lower), millis(spun.upper)),
        );
        let share = match injected.made {
            0 => "-".to_owned(),
            made => percent(injected.on_target as f64 / made as f64),
        };
        let _ = writeln!(
            text,
            "  {:<30}{:>8}{share:>11}{:>13}{off:>14}{spun:>26}",
            name(&injected.case),
            injected.made,
            injected.other_looks,
        );
    }
    text
}

fn schedule_itself(itself: &Itself) -> String {
    let micros = |nanos: f64| format!("{:.1} us", nanos / 1e3);
    let over_runs = |all: &[Latency], figure: fn(&Latency) -> u64| {
        let all: Vec<f64> = all.iter().map(|latency| figure(latency) as f64).collect();
        let worst = all.iter().copied().fold(0.0, f64::max);
        stats::median(&all).map_or_else(
            || "-".to_owned(),
            |median| format!("{} (worst run {})", micros(median), micros(worst)),
        )
    };
    let mut text = String::from("\nThe schedule itself, rr with native locks, medians over runs\n");
    for (what, all) in [
        ("late: end of a turn, actual less asked", &itself.lateness),
        ("switch: preempted vCPU's exit to next vCPU's entry", &itself.handover),
    ] {
        let _ = writeln!(
            text,
            "  {what}\n    p50 {}   p99 {}   max {}",
            over_runs(all, |latency| latency.p50),
            over_runs(all, |latency| latency.p99),
            over_runs(all, |latency| latency.max),
        );
    }
    let p50: Vec<f64> = itself.handover.iter().map(|latency| latency.p50 as f64).collect();
    if let (Some(switch), Some(futex), Some(exit)) =
        (stats::median(&p50), itself.futex_ns, itself.exit_ns)
    {
        let _ = writeln!(
            text,
            "  a same-CPU futex handoff here: {}; a KVM exit: {}; the switch is {:.1} handoffs",
            micros(futex),
            micros(exit),
            switch / futex,
        );
    }
    text
}

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    pvticket: &'static str,
    host: &'a HostFacts,
    work: &'a str,
    slots: &'a [usize],
    slice_ns: u64,
    rounds: u32,
    seconds: f64,
    seed: u64,
    interrupted: bool,
    repeated: u32,
    throughput: Vec<Kept>,
    deliberate: Vec<Injected>,
    itself: Itself,
    host_costs: &'a [HostCosts],
    samples: Vec<Samples<'a>>,
}

#[derive(Serialize)]
struct Samples<'a> {
    #[serde(flatten)]
    case: &'a Case,
    samples: &'a [Sample],
}

/// Everything as JSON.
pub fn json(
    figures: &SchedFigures,
    plan: &SchedPlan,
    host: &HostFacts,
    work: &str,
) -> serde_json::Result<String> {
    let all = || figures.baselines.iter().chain(&figures.policies).chain(&figures.injected);
    let document = Document {
        format: FORMAT,
        pvticket: env!("CARGO_PKG_VERSION"),
        host,
        work,
        slots: plan.cpus.cpus(),
        slice_ns: plan.slice.0,
        rounds: plan.rounds,
        seconds: plan.duration.as_secs_f64(),
        seed: plan.seed,
        interrupted: figures.interrupted,
        repeated: figures.repeated,
        throughput: all_kept(figures, plan),
        deliberate: figures.injected.iter().map(injected).collect(),
        itself: itself(figures),
        host_costs: &figures.host,
        samples: all().map(|of| Samples { case: &of.case, samples: &of.samples }).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}
