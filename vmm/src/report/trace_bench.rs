//! The table and the JSON of `bench trace`.

use std::fmt::Write;

use serde::Serialize;

use super::{si::si, table::dash};
use crate::lab::{
    host::HostFacts,
    stats::{Estimate, Interval},
    trace_bench::{TraceFigures, TracePlan, Trios},
};

/// Version of the JSON document's form.
const FORMAT: u32 = 1;

/// Everything as text.
pub fn table(figures: &TraceFigures, plan: &TracePlan, host: &HostFacts, work: &str) -> String {
    let mut text = format!(
        "host    {}, {} KVM, Linux {}\n\
         guest   {work}, PV locks; {} vCPUs on CPUs {}, turns of {}\n\
         method  {} rounds; in each every policy once traced and twice plain, in a random order, \
         {} s a run, seed {}\n",
        host.cpu,
        host.kvm,
        host.kernel,
        plan.vcpus,
        plan.cpus,
        plan.slice,
        plan.rounds,
        plan.duration.as_secs_f64(),
        plan.seed,
    );
    if figures.interrupted {
        text.push_str("note    interrupted: some policies have fewer rounds\n");
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\n{:<28}{:>4}{:>10}   {:<26}{:<26}{:>8}{:>6}",
        "policy", "N", "plain/s", "traced/plain, 95 %", "plain/plain again, 95 %", "kept/s", "lost"
    );
    for trios in &figures.policies {
        let _ = writeln!(text, "{}", line(trios));
    }
    text
}

fn line(trios: &Trios) -> String {
    let figure = |value: Option<f64>| value.map_or_else(dash, si);
    format!(
        "{:<28}{:>4}{:>10}   {:<26}{:<26}{:>8}{:>6}",
        trios.policy,
        trios.rounds.len(),
        figure(trios.median(|trio| trio.plain)),
        within(trios.traced()),
        within(trios.itself()),
        figure(trios.median(|trio| trio.kept)),
        trios.lost(),
    )
}

/// In thousandths: 2 % is what this is about.
fn within(estimate: Option<Estimate>) -> String {
    let Some(Estimate { value, interval }) = estimate else { return dash() };
    match interval {
        Some(Interval { low, high }) => format!("{value:.3} ({low:.3} .. {high:.3})"),
        None => format!("{value:.3}"),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    pvticket: &'static str,
    host: &'a HostFacts,
    work: &'a str,
    vcpus: u32,
    slots: &'a [usize],
    slice_ns: u64,
    seconds: f64,
    seed: u64,
    interrupted: bool,
    policies: Vec<Judged<'a>>,
}

#[derive(Serialize)]
struct Judged<'a> {
    traced_over_plain: Option<Estimate>,
    plain_over_plain: Option<Estimate>,
    #[serde(flatten)]
    trios: &'a Trios,
}

/// Everything as JSON.
pub fn json(
    figures: &TraceFigures,
    plan: &TracePlan,
    host: &HostFacts,
    work: &str,
) -> serde_json::Result<String> {
    let judged = |trios| Judged {
        traced_over_plain: Trios::traced(trios),
        plain_over_plain: Trios::itself(trios),
        trios,
    };
    let document = Document {
        format: FORMAT,
        pvticket: env!("CARGO_PKG_VERSION"),
        host,
        work,
        vcpus: plan.vcpus.get(),
        slots: plan.cpus.cpus(),
        slice_ns: plan.slice.0,
        seconds: plan.duration.as_secs_f64(),
        seed: plan.seed,
        interrupted: figures.interrupted,
        policies: figures.policies.iter().map(judged).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}
