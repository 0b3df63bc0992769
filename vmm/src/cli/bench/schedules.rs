//! `pvticket bench sched`.

use std::{slice, time::Duration};

use anyhow::Context;
use base::{plural::count, units::CpuList};
use clap::Args;

use super::{Scheduled, keep};
use crate::cli::{Usage, compare::ComparedGuest, print};
use doctor::topology::Topology;
use experiments::{
    cpus,
    measure::{finish, measure_plan, plan_of},
    plan::Plan,
    workers::Traced,
};
use lab::{
    bench::{
        boot_times::exits,
        thread_wakeup::{self, Placement},
    },
    host::topology,
};
use report::sched_bench::{self, HostCosts};
use study::{
    findings::Study,
    plan::Seconds,
    point::{GuestKind, HostKind},
    spec::made::{
        rounds::Rounds,
        schedules::{SchedPlan, WARM_UP},
    },
    stats,
    store::export,
};

/// Measure the throughput under each policy as a share of that at 1x, the cost of injected
/// preemptions, and the precision and overhead of the schedule.
#[derive(Debug, Args)]
pub(super) struct SchedBenchArgs {
    /// Guest of the machines
    #[arg(long, value_enum, default_value_t = ComparedGuest::Payload)]
    guest: ComparedGuest,

    /// Rounds; each measures every case once [default: 8 for the payload, 3 for Linux]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,

    /// Time measured in a run [default: 0.4 for the payload, 1 for Linux]
    #[arg(long, value_name = "S")]
    seconds: Option<Seconds>,

    /// Overcommit ratios, in vCPUs per slot [default: 2,4,8 for the payload, 2 for Linux]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(2..=64))]
    overcommit: Option<Vec<u32>>,

    #[command(flatten)]
    scheduled: Scheduled,
}

impl SchedBenchArgs {
    fn is_linux(&self) -> bool {
        self.guest == ComparedGuest::Linux
    }

    fn overcommit(&self) -> Vec<u32> {
        let default = if self.is_linux() { vec![2] } else { vec![2, 4, 8] };
        self.overcommit.clone().unwrap_or(default)
    }

    fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.is_linux() { 3 } else { 8 })
    }

    fn duration(&self) -> Duration {
        let default = if self.is_linux() { 1.0 } else { 0.4 };
        self.seconds.map_or(Duration::from_secs_f64(default), |seconds| seconds.0)
    }
}

/// The specs and the CPUs.
pub(super) fn plan(
    args: &SchedBenchArgs,
    topology: &Topology,
) -> Result<(SchedPlan, CpuList), Usage> {
    let cpus = cpus::choose(topology, args.scheduled.cpus.as_ref(), None)?;
    let overcommit = args.overcommit();
    let slots = cpus.cpus().len() as u32;
    let most = overcommit.iter().max().map_or(0, |times| times * slots);
    if most > hypercalls::MAX_VCPUS {
        return Err(Usage(format!(
            "--overcommit on {} is up to {most} vCPUs: a machine has 1 to {}",
            count(slots, "CPU"),
            hypercalls::MAX_VCPUS
        )));
    }
    let plan = SchedPlan {
        guest: if args.is_linux() { GuestKind::Linux } else { GuestKind::Payload },
        slots,
        slice: args.scheduled.slice,
        rounds: Rounds {
            count: args.runs(),
            warm_up: WARM_UP,
            duration: args.duration(),
            seed: args.scheduled.seed,
        },
        overcommit,
    };
    Ok((plan, cpus))
}

pub(super) fn run(args: &SchedBenchArgs) -> anyhow::Result<u8> {
    args.scheduled.common.seccomp.choose()?;
    let (bench, cpus) = plan(args, &topology())?;
    let plan = plan_of("sched", &bench.specs(), cpus.clone(), args.scheduled.common.place())?;
    let costs = is_here(&plan).then(|| host_costs(&cpus)).transpose()?;
    let measured = measure_plan(plan, Traced::Nothing)?;
    let records = slice::from_ref(&measured.record);
    let study = Study::new(records);
    print(&sched_bench::table(&study, &measured.record, costs));
    keep(args.scheduled.common.json.as_deref(), || export::json(records, &study))?;
    finish(&measured.summary, &study)
}

fn is_here(plan: &Plan) -> bool {
    plan.experiment.points.iter().all(|point| point.host == HostKind::Direct)
}

/// The medians of a few measurements on the first of these CPUs.
fn host_costs(cpus: &CpuList) -> anyhow::Result<HostCosts> {
    const TIMES: u32 = 5;
    let cpu = cpus.cpus()[0];
    let (mut futex, mut exit) = (Vec::new(), Vec::new());
    for round in 0..TIMES {
        exit.push(exits::measure(cpu, round.is_multiple_of(2))?.bare_ns);
        let handoff = thread_wakeup::mean_handoff(Placement::SameCpu, &CpuList::of(cpu));
        futex.push(handoff.context("cannot measure how threads wake each other")?);
    }
    let median = |all: &[f64]| stats::median(all).unwrap_or_default();
    Ok(HostCosts { futex_ns: median(&futex), exit_ns: median(&exit) })
}
