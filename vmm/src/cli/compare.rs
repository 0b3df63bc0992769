//! `pvticket compare`: native against PV ticketlocks under overcommit.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use super::{
    INTERRUPTED, Usage,
    host::{self, GuestClass},
};
use crate::{
    guest::payload::PayloadSpec,
    kvm::KvmKind,
    lab::{
        Cell, Comparison, Interrupt, LevelReport, PayloadCell, Plan,
        compare::compare,
        host::HostFacts,
        plan::{self, Level, PlanError, Seconds},
    },
    report::{
        json,
        progress::Progress,
        table::{self, Heading},
    },
    units::CpuList,
    vm::PvBackend,
};

/// Contention before the measurement. A run begins with a fast spell, until the
/// first holder is preempted: some scheduler slices.
const WARM_UP: Duration = Duration::from_millis(100);

/// Compare native with PV ticketlocks: take one lock on every vCPU, on few CPUs.
/// Runs alternate between the two, each on a fresh machine.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// vCPUs of the machine, 1 to 128, or vCPUs for each CPU
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1x,1.5x,2x,4x",
        allow_hyphen_values = true
    )]
    vcpus: Vec<Level>,

    /// Host CPUs that carry the vCPUs, for example 0,2-5 [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// What runs in the machine
    #[arg(long, value_enum, default_value_t = Guest::Payload)]
    guest: Guest,

    /// Time measured in a run
    #[arg(long, value_name = "S", default_value = "0.5", allow_hyphen_values = true)]
    seconds: Seconds,

    /// Runs of each lock at each number of vCPUs
    #[arg(long, value_name = "K", default_value_t = 10, allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,

    /// Write every run's figures to this file
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,

    /// Increments of a shared counter under the lock
    #[arg(long, value_name = "N", default_value_t = PayloadSpec::CRITICAL)]
    critical: u32,

    /// Increments of a private counter between two acquisitions
    #[arg(long, value_name = "N", default_value_t = PayloadSpec::THINK)]
    think: u32,

    /// Looks at the lock before a PV waiter halts
    #[arg(long, value_name = "N", default_value_t = PayloadSpec::SPIN_THRESHOLD)]
    spin_threshold: u32,

    /// Seed of the resampling and of who begins
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Kinds of guests that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Guest {
    /// The ring-3 payload, on any KVM
    Payload,
}

/// What the guest did, for the JSON.
#[derive(Debug, Serialize)]
struct Workload {
    guest: Guest,
    critical: u32,
    think: u32,
    spin_threshold: u32,
}

/// Runs the subcommand; gives the exit status.
pub fn run(args: &CompareArgs) -> anyhow::Result<u8> {
    let plan = resolve(args).map_err(|error| Usage(error.to_string()))?;
    host::check_direct(GuestClass::Payload, KvmKind::detect())?;
    let json = args.json.as_ref().map(open).transpose()?;
    let interrupt = catch_interrupts()?;
    let facts = HostFacts::gather(&plan.cpus);
    let comparison = carry_out(args, &plan, &facts, &interrupt)?;
    if let Some((path, file)) = json {
        store(path, file, &json::render(&facts, &workload(args), &plan, &comparison)?)?;
    }
    finish(&plan, &comparison)
}

fn resolve(args: &CompareArgs) -> Result<Plan, PlanError> {
    let cpus = plan::resolve_cpus(args.cpus.clone())?;
    Ok(Plan {
        levels: plan::resolve_levels(&args.vcpus, &cpus)?,
        cpus,
        runs: args.runs,
        warm_up: WARM_UP,
        duration: args.seconds.0,
        backends: vec![PvBackend::Off, PvBackend::Vmm],
        seed: args.seed,
    })
}

/// The file, opened before anything is measured in vain. What it holds stays
/// until there is something better.
fn open(path: &PathBuf) -> anyhow::Result<(&PathBuf, File)> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    Ok((path, file.with_context(|| format!("cannot write {}", path.display()))?))
}

fn store(path: &Path, mut file: File, text: &str) -> anyhow::Result<()> {
    file.set_len(0)
        .and_then(|()| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// From now on Ctrl-C ends the comparison, which keeps what it has.
fn catch_interrupts() -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::new();
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, interrupt.flag()).context("cannot catch Ctrl-C")?;
    }
    Ok(interrupt)
}

fn carry_out(
    args: &CompareArgs,
    plan: &Plan,
    host: &HostFacts,
    interrupt: &Interrupt,
) -> anyhow::Result<Comparison> {
    let cell = cell(args);
    let mut progress = Progress::new(plan);
    progress.print(&table::heading(&heading(args, plan, host)));
    Ok(compare(plan, cell.as_ref(), interrupt, &mut progress)?)
}

fn cell(args: &CompareArgs) -> Box<dyn Cell> {
    let &CompareArgs { spin_threshold, critical, think, .. } = args;
    match args.guest {
        Guest::Payload => Box::new(PayloadCell { spin_threshold, critical, think }),
    }
}

fn workload(args: &CompareArgs) -> Workload {
    let &CompareArgs { guest, spin_threshold, critical, think, .. } = args;
    Workload { guest, critical, think, spin_threshold }
}

fn heading(args: &CompareArgs, plan: &Plan, host: &HostFacts) -> Heading {
    let &CompareArgs { spin_threshold, critical, think, seconds, runs, .. } = args;
    Heading {
        work: format!(
            "ring-3 payload: {critical} increments under one lock, {think} beside it; \
             PV halts after {spin_threshold} looks"
        ),
        method: format!(
            "{runs} runs of {seconds} s each (after {} s of warm-up), alternating, each on a fresh \
             machine; CPU{} {}",
            WARM_UP.as_secs_f64(),
            if plan.cpus.cpus().len() == 1 { "" } else { "s" },
            plan.cpus
        ),
        host: host.clone(),
    }
}

fn finish(plan: &Plan, comparison: &Comparison) -> anyhow::Result<u8> {
    let violations: u64 =
        comparison.levels.iter().map(|samples| LevelReport::new(plan, samples).violations()).sum();
    if violations > 0 {
        anyhow::bail!("mutual exclusion failed {violations} times: this is a bug");
    }
    Ok(if comparison.interrupted { INTERRUPTED } else { 0 })
}
