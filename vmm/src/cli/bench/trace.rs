//! `pvticket bench trace`.

use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::{Scheduled, keep};
use crate::{
    cli::{
        Usage,
        compare::Workload,
        host::{self, GuestClass, Place},
        print, say,
        schedule::PolicyList,
    },
    kvm::KvmKind,
    lab::{
        Interrupt, PayloadCell,
        host::HostFacts,
        plan::{Seconds, resolve_cpus},
        trace_bench::{self, TracePlan},
    },
    report::trace_bench as report,
    sched::PolicySpec,
    signals,
    units::{ByteSize, VcpuCount},
};

/// What a timeline (--trace) costs of the throughput: traced runs beside plain ones, and plain
/// ones beside themselves.
#[derive(Debug, Args)]
pub(super) struct TraceBenchArgs {
    /// Rounds; each runs every policy once traced and twice plain
    #[arg(long, value_name = "K", default_value_t = 40,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// Time measured in a run
    #[arg(long, value_name = "S", default_value = "0.2")]
    seconds: Seconds,

    /// Under which schedules
    #[arg(long, value_name = "LIST", default_value = "host,rr,kick-boost,deferred")]
    policy: Vec<PolicyList>,

    /// vCPUs, all of which contend [default: two a CPU]
    #[arg(long, value_name = "N")]
    vcpus: Option<VcpuCount>,

    #[command(flatten)]
    scheduled: Scheduled,
}

pub(super) fn run(args: &TraceBenchArgs) -> anyhow::Result<u8> {
    if PolicyList::named(&args.policy).iter().any(|policy| policy.replays().is_some()) {
        return Err(Usage("--policy: no replays here".into()).into());
    }
    match host::choose(args.scheduled.host, GuestClass::Payload, KvmKind::detect()).place {
        Place::Direct => direct(args),
        Place::Emulated => emulated(args),
    }
}

fn direct(args: &TraceBenchArgs) -> anyhow::Result<u8> {
    let usage = |error: &dyn std::fmt::Display| Usage(error.to_string());
    let cpus = resolve_cpus(args.scheduled.cpus.clone()).map_err(|error| usage(&error))?;
    let vcpus = match args.vcpus {
        Some(vcpus) => vcpus,
        None => {
            let both = 2 * cpus.cpus().len() as u32;
            VcpuCount::try_from(both).map_err(|error| usage(&error))?
        }
    };
    let plan = TracePlan {
        cpus,
        vcpus,
        policies: PolicyList::named(&args.policy),
        slice: args.scheduled.slice,
        rounds: args.runs,
        warm_up: Duration::from_millis(50),
        duration: args.seconds.0,
        seed: args.scheduled.seed,
    };
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let host = HostFacts::gather(&plan.cpus);
    let mut started = |round: u32, policy: &PolicySpec| {
        say(format_args!("round {} of {}: {policy}", round + 1, plan.rounds));
    };
    let workload = Workload::Payload(PayloadCell::default());
    let figures = trace_bench::run(&plan, workload.cell().as_ref(), &interrupt, &mut started)?;
    let work = workload.to_string();
    print(&report::table(&figures, &plan, &host, &work));
    keep(args.scheduled.json.as_deref(), || report::json(&figures, &plan, &host, &work))?;
    Ok(if figures.interrupted { signals::exit_status() } else { 0 })
}

fn emulated(args: &TraceBenchArgs) -> anyhow::Result<u8> {
    let policies = PolicyList::named(&args.policy);
    let policies: Vec<String> = policies.iter().map(PolicySpec::to_string).collect();
    let options = [
        ("--runs", args.runs.to_string()),
        ("--seconds", args.seconds.0.as_secs_f64().to_string()),
        ("--policy", policies.join(",")),
    ];
    let options = options.into_iter().chain(args.vcpus.map(|of| ("--vcpus", of.to_string())));
    args.scheduled.there("trace", options, ByteSize(hypercalls::payload::MEMORY)).run()
}
