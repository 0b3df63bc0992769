//! `pvticket bench sched`.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::{Scheduled, keep};
use crate::{
    cli::{
        Usage,
        compare::{Guest, Workload},
        host::{self, GuestClass, Place},
        print, say,
    },
    guest::{artifacts, kernels::Kernels, payload::PayloadSpec},
    kvm::{KvmKind, host::is_emulated},
    lab::{
        GuestWorkload, Interrupt, LinuxCell, PayloadCell,
        host::HostFacts,
        plan::{Seconds, resolve_cpus},
        sched_bench::{self, Case, SchedPlan},
    },
    report::sched_bench as report,
    signals,
    units::ByteSize,
};

/// Throughput under each policy as a share of 1x, what deliberate preemptions cost, and how
/// exact and how cheap the schedule is.
#[derive(Debug, Args)]
pub(super) struct SchedBenchArgs {
    /// What runs in the machines
    #[arg(long, value_enum, default_value_t = Guest::Payload)]
    guest: Guest,

    /// Rounds; each measures every case once [default: 8 for the payload, 3 for Linux]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,

    /// Time measured in a run [default: 0.4 for the payload, 1 for Linux]
    #[arg(long, value_name = "S")]
    seconds: Option<Seconds>,

    /// So many times more vCPUs than slots [default: 2,4,8 for the payload, 2 for Linux]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(2..=64))]
    overcommit: Option<Vec<u32>>,

    #[command(flatten)]
    scheduled: Scheduled,
}

impl SchedBenchArgs {
    fn is_linux(&self) -> bool {
        self.guest == Guest::Linux
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

pub(super) fn run(args: &SchedBenchArgs) -> anyhow::Result<u8> {
    let class = if args.is_linux() { GuestClass::Ring0 } else { GuestClass::Payload };
    match host::choose(args.scheduled.host, class, KvmKind::detect()).place {
        Place::Direct => direct(args),
        Place::Emulated => emulated(args),
    }
}

fn direct(args: &SchedBenchArgs) -> anyhow::Result<u8> {
    let usage = |error: &dyn std::fmt::Display| Usage(error.to_string());
    let cpus = resolve_cpus(args.scheduled.cpus.clone()).map_err(|error| usage(&error))?;
    let overcommit = args.overcommit();
    let most = overcommit.iter().max().map_or(0, |times| *times as usize * cpus.cpus().len());
    if most > hypercalls::MAX_VCPUS as usize {
        return Err(usage(&format!(
            "--overcommit on {} CPUs is up to {most} vCPUs: a machine has 1 to {}",
            cpus.cpus().len(),
            hypercalls::MAX_VCPUS
        ))
        .into());
    }
    let workload = match args.guest {
        Guest::Payload => Workload::Payload(PayloadCell::default()),
        Guest::Linux => Workload::Linux {
            workload: GuestWorkload::Lock,
            critical: PayloadSpec::CRITICAL,
            think: PayloadSpec::THINK,
            spin_threshold: LinuxCell::default_looks(is_emulated()),
            kernels: Kernels { ticket: Some(artifacts::built_kernel()?), stock: None },
        },
    };
    let plan = SchedPlan {
        slice: args.scheduled.slice,
        rounds: args.runs(),
        warm_up: Duration::from_millis(100),
        duration: args.duration(),
        seed: args.scheduled.seed,
        overcommit,
        cpus,
    };
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let host = HostFacts::gather(&plan.cpus);
    let mut started = |round: u32, case: &Case| {
        let Case { vms, vcpus, policy, backend } = case;
        say(format_args!(
            "round {} of {}: {vms} x {vcpus} vCPUs, {policy}, {backend}",
            round + 1,
            plan.rounds
        ));
    };
    let cell = workload.cell();
    let figures = sched_bench::run(&plan, cell.as_ref(), &interrupt, &mut started)?;
    let work = workload.to_string();
    let text = report::table(&figures, &plan, &host, &work);
    print(&text);
    keep(args.scheduled.json.as_deref(), || report::json(&figures, &plan, &host, &work))?;
    let all = figures.baselines.iter().chain(&figures.policies).chain(&figures.injected);
    let violations: u64 = all.flat_map(|of| &of.samples).map(|sample| sample.violations).sum();
    if violations > 0 {
        bail!("mutual exclusion failed {violations} times: this is a bug");
    }
    Ok(if figures.interrupted { signals::exit_status() } else { 0 })
}

fn emulated(args: &SchedBenchArgs) -> anyhow::Result<u8> {
    let times: Vec<String> = args.overcommit().iter().map(u32::to_string).collect();
    let (guest, memory) = match args.guest {
        Guest::Payload => ("payload", ByteSize(hypercalls::payload::MEMORY)),
        Guest::Linux => ("linux", LinuxCell::MEMORY),
    };
    // Gangs are as many machines as there is overcommit.
    let machines = args.overcommit().into_iter().max().unwrap_or(1);
    let options = [
        ("--guest", guest.to_owned()),
        ("--runs", args.runs().to_string()),
        ("--seconds", args.duration().as_secs_f64().to_string()),
        ("--overcommit", times.join(",")),
    ];
    let memory = ByteSize(memory.0.saturating_mul(machines.into()));
    let inside = args.scheduled.there("sched", options, memory);
    match args.guest {
        Guest::Payload => inside.run(),
        Guest::Linux => inside.with_kernel(&artifacts::built_kernel()?).run(),
    }
}
