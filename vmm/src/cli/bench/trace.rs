//! `pvticket bench trace`.

use std::slice;

use clap::Args;

use super::{Scheduled, keep};
use crate::cli::{Usage, print, schedule::PolicyList};
use base::units::{CpuList, VcpuCount};
use doctor::topology::Topology;
use experiments::{
    cpus,
    measure::{finish, measure_plan, plan_of},
    workers::Traced,
};
use lab::host::topology;
use report::trace_bench;
use study::{
    findings::Study,
    plan::Seconds,
    spec::made::{
        rounds::Rounds,
        trace::{TRACED, TracePlan, WARM_UP},
    },
    store::export,
};

/// Measure how much throughput a timeline (--trace) costs: traced runs against plain ones, and
/// plain ones against each other.
#[derive(Debug, Args)]
pub(super) struct TraceBenchArgs {
    /// Rounds; each runs every policy once traced and twice plain
    #[arg(long, value_name = "K", default_value_t = 40,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// Time measured in a run
    #[arg(long, value_name = "S", default_value = "0.2")]
    seconds: Seconds,

    /// Policies to measure under
    #[arg(long, value_name = "LIST", default_value = "host,rr,kick-boost,deferred")]
    policy: Vec<PolicyList>,

    /// vCPUs, all of which contend [default: two per CPU]
    #[arg(long, value_name = "N")]
    vcpus: Option<VcpuCount>,

    #[command(flatten)]
    scheduled: Scheduled,
}

pub(super) fn run(args: &TraceBenchArgs) -> anyhow::Result<u8> {
    args.scheduled.common.seccomp.choose()?;
    let (bench, cpus) = plan(args, &topology())?;
    let plan = plan_of("trace", &[bench.spec()], cpus, args.scheduled.common.place())?;
    let measured = measure_plan(plan, Traced::Label(TRACED))?;
    let records = slice::from_ref(&measured.record);
    let study = Study::new(records);
    print(&trace_bench::table(&study, &measured.record));
    keep(args.scheduled.common.json.as_deref(), || export::json(records, &study))?;
    finish(&measured.summary, &study)
}

/// The plan, and its CPUs.
pub(super) fn plan(
    args: &TraceBenchArgs,
    topology: &Topology,
) -> Result<(TracePlan, CpuList), Usage> {
    let policies = PolicyList::named(&args.policy);
    if policies.iter().any(|policy| policy.replays().is_some()) {
        return Err(Usage("--policy: replays cannot be measured here".into()));
    }
    let cpus = cpus::choose(topology, args.scheduled.cpus.as_ref(), None)?;
    let slots = cpus.cpus().len() as u32;
    let vcpus = match args.vcpus {
        Some(vcpus) => vcpus,
        None => VcpuCount::try_from(2 * slots)?,
    };
    let plan = TracePlan {
        slots,
        vcpus,
        policies,
        slice: args.scheduled.slice,
        rounds: Rounds {
            count: args.runs,
            warm_up: WARM_UP,
            duration: args.seconds.0,
            seed: args.scheduled.seed,
        },
    };
    Ok((plan, cpus))
}
