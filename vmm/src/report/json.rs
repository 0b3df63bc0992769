//! A comparison as JSON: everything the table was made of.

use serde::Serialize;

use crate::lab::{Comparison, Contender, LevelReport, Plan, Sample, host::HostFacts};

/// Version of this document's form. 2: contrasts have a corrected test, and verdicts follow it.
const FORMAT: u32 = 2;

#[derive(Serialize)]
struct Document<'a, W> {
    format: u32,
    pvticket: &'static str,
    host: &'a HostFacts,
    workload: &'a W,
    plan: PlanFacts<'a>,
    complete: bool,
    levels: Vec<Level<'a>>,
}

#[derive(Serialize)]
struct PlanFacts<'a> {
    cpus: &'a [usize],
    runs: u32,
    warm_up: f64,
    seconds: f64,
    backends: Vec<&'static str>,
    policies: Vec<String>,
    handoffs: Vec<String>,
    vms: u32,
    slots: usize,
    slice_ns: u64,
    seed: u64,
    faults: Option<String>,
}

#[derive(Serialize)]
struct Level<'a> {
    #[serde(flatten)]
    report: LevelReport,
    runs: Vec<Run<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    #[serde(flatten)]
    contender: &'a Contender,
    round: u32,
    rate: f64,
    #[serde(flatten)]
    sample: &'a Sample,
}

/// Renders the whole comparison; `workload` says what the guest did. The runs are
/// in the order in which they were made.
pub fn render<W: Serialize>(
    host: &HostFacts,
    workload: &W,
    plan: &Plan,
    comparison: &Comparison,
) -> serde_json::Result<String> {
    let document = Document {
        format: FORMAT,
        pvticket: env!("CARGO_PKG_VERSION"),
        host,
        workload,
        plan: PlanFacts {
            cpus: plan.cpus.cpus(),
            runs: plan.runs,
            warm_up: plan.warm_up.as_secs_f64(),
            seconds: plan.duration.as_secs_f64(),
            backends: unique(plan, |contender| contender.backend.name()),
            policies: unique(plan, |contender| contender.policy.to_string()),
            handoffs: unique(plan, |contender| contender.handoff.to_string()),
            vms: plan.vms,
            slots: plan.slots,
            slice_ns: plan.slice.0,
            seed: plan.seed,
            faults: plan.faults.map(|faults| faults.to_string()),
        },
        complete: !comparison.interrupted,
        levels: LevelReport::all(plan, &comparison.levels)
            .into_iter()
            .zip(&comparison.levels)
            .map(|(report, samples)| Level {
                report,
                runs: samples
                    .runs
                    .iter()
                    .map(|run| Run {
                        contender: &run.contender,
                        round: run.round,
                        rate: run.sample.rate(),
                        sample: &run.sample,
                    })
                    .collect(),
            })
            .collect(),
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}

/// What the contenders differ in, in their order.
fn unique<T: PartialEq>(plan: &Plan, of: impl Fn(&Contender) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for name in plan.contenders.iter().map(of) {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}
