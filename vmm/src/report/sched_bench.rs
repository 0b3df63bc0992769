//! The table and the JSON of `bench sched`.

mod figures;

use std::fmt::Write;

use serde::Serialize;

use super::si::{percent, ratio, si};
use crate::{
    lab::{
        Sample,
        host::HostFacts,
        sched_bench::{Case, HostCosts, SchedFigures, SchedPlan},
        stats::{self, Estimate, Interval},
    },
    sched::driver::Latency,
    vm::PvBackend,
};
use figures::{Handoff, Injected, Itself, Kept, all_kept, handoffs, injected, itself};

/// Version of the JSON document's form.
const FORMAT: u32 = 1;

fn handoff_table(figures: &SchedFigures) -> String {
    let mut text = format!(
        "\nA PV lock's way to a waiter that halts, p50 (p99), medians over runs\n\
         {:<32}{:>20}{:>20}{:>24}\n",
        "vCPUs, policy", "release -> kick", "kick -> grant", "grant -> guest's code"
    );
    let cell = |all: &[Latency]| {
        let of = |figure: fn(&Latency) -> u64| {
            let all = all.iter().filter(|latency| latency.count > 0);
            stats::median(&all.map(|latency| figure(latency) as f64).collect::<Vec<_>>())
        };
        match (of(|latency| latency.p50), of(|latency| latency.p99)) {
            (Some(p50), Some(p99)) => format!("{:.1} us ({:.0})", p50 / 1e3, p99 / 1e3),
            _ => "-".to_owned(),
        }
    };
    for Handoff { case, release_to_kick, kick_to_grant, grant_to_guest } in handoffs(figures) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  {:<30}{:>20}{:>20}{:>24}",
            format!("{} {}", case.vcpus, case.policy),
            cell(&release_to_kick),
            cell(&kick_to_grant),
            cell(&grant_to_guest),
        );
    }
    text
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
    text.push_str(&handoff_table(figures));
    text.push_str(&schedule_itself(&itself(figures)));
    text
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
    throughput: Vec<Kept>,
    deliberate: Vec<Injected>,
    handoffs: Vec<Handoff>,
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
        throughput: all_kept(figures, plan),
        deliberate: figures.injected.iter().map(injected).collect(),
        handoffs: handoffs(figures),
        itself: itself(figures),
        host_costs: &figures.host,
        samples: all().map(|of| Samples { case: &of.case, samples: &of.samples }).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}
