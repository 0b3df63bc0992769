//! `pvticket soak`: runs a PV ticketlock for long under injected faults.

use std::slice;

use anyhow::bail;
use clap::Args;

use super::{
    Usage,
    confinement::SeccompArgs,
    host::{HostKernelArgs, modes},
    print, say,
    schedule::DRIVER_HELP,
};
use base::{
    faults::{Fault, FaultSpec},
    plural::{agree, count, noun},
    units::{CpuList, Nanos, VcpuCount},
};
use doctor::topology::Topology;
use experiments::{
    cpus,
    host::HostMode,
    measure::{Asked, Folder, finish, measure, plan_of},
    prepare::driver,
    workers::{KernelFiles, Traced},
};
use lab::{
    host::topology,
    soak::{Soak, SoakPlan, Tally},
};
use report::{faults::in_a_line, si::si};
use sched::{PolicySpec, accounting::Totals, driver::DriverKind, policy::DEFAULT_SLICE};
use study::{
    findings::Study,
    plan::{Level, Seconds, resolve_levels},
    point::Point,
    store::record::Figures,
};

/// Take one PV ticketlock for long while kicks and halts fail on purpose, and check mutual
/// exclusion, that tickets are served in order, and that no vCPU waits forever.
#[derive(Debug, Args)]
pub struct SoakArgs {
    /// Acquisitions to do; the round that reaches them is finished
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    acquisitions: u64,

    /// vCPUs of the rounds' machines, in turn: 1 to 128, or vCPUs for each slot
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "4x,2x,1.5x,1x",
        allow_hyphen_values = true
    )]
    vcpus: Vec<Level>,

    #[arg(long, value_name = "LIST", help = cpus::HELP)]
    cpus: Option<CpuList>,

    /// Slots of the schedule: the first of these CPUs [default: all]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    slots: Option<usize>,

    /// Policy that schedules the vCPUs, as for compare
    #[arg(long, value_name = "P", default_value = "random")]
    policy: PolicySpec,

    #[arg(long, value_name = "user|bpf", default_value = "user", help = DRIVER_HELP.as_str())]
    driver: DriverKind,

    /// How long a turn on a slot lasts, for example 500us or 4ms
    #[arg(long, value_name = "T", default_value_t = DEFAULT_SLICE, allow_hyphen_values = true)]
    slice: Nanos,

    /// Faults to inject, as for compare
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "kick-delay:20us,kick-dup:0.05,spurious:0.05,halt-delay:20us",
        allow_hyphen_values = true
    )]
    fault: Vec<Fault>,

    /// Length of a round; each round has a fresh machine
    #[arg(long, value_name = "S", default_value = "5", allow_hyphen_values = true)]
    round: Seconds,

    /// Seed of the first round's schedule and faults; the next round's is one more
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where to run: this host's KVM, or an AMD-V machine that QEMU emulates
    #[arg(long, value_parser = modes(), default_value_t = HostMode::Auto)]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,

    #[command(flatten)]
    seccomp: SeccompArgs,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &SoakArgs) -> anyhow::Result<u8> {
    args.seccomp.choose()?;
    let (soak, cpus) = plan(args, &topology())?;
    let mut plan = plan_of("soak", &[soak.spec()], cpus, (args.host, args.host_kernel.choice()))?;
    let rounds = soak.rounds(plan.experiment.clone());
    plan.replace(rounds);
    let mut told = |point: &Point, figures: &Figures, tally: &Tally| {
        say(format_args!(
            "round {}, {}: {}/s; {} of {} {}",
            tally.rounds,
            count(point.vcpus.get(), "vCPU"),
            si(figures.rate()),
            si(tally.acquisitions as f64),
            si(soak.acquisitions as f64),
            noun(soak.acquisitions, "acquisition"),
        ));
    };
    let mut rounds =
        Soak { plan: &soak, tally: Tally::default(), told: &mut told, has_failed: false };
    let asked = Asked {
        traced: Traced::Nothing,
        record: false,
        watcher: Some(&mut rounds),
        ends_at_failure: true,
    };
    let mut measured = measure(plan, &Folder::new(None)?, &KernelFiles::default(), asked)?;
    let tally = rounds.tally;
    // The rounds that were not needed are not missing.
    if !measured.summary.stopped {
        measured.summary.left = 0;
    }
    if tally.rounds > 0 {
        print(&summary(&soak, &tally));
    }
    let status = finish(&measured.summary, &Study::new(slice::from_ref(&measured.record)))?;
    if status == 0 && tally.acquisitions < soak.acquisitions {
        bail!(
            "{} {} not enough: make them longer (--round)",
            count(tally.rounds, "round"),
            agree(tally.rounds, "was", "were")
        );
    }
    Ok(status)
}

pub(super) fn plan(args: &SoakArgs, topology: &Topology) -> Result<(SoakPlan, CpuList), Usage> {
    let is_other = args.policy.is_host() || args.policy.is_host_model();
    if is_other || args.policy.replays().is_some() {
        return Err(Usage(format!("--policy {}: a soak needs a schedule of ours", args.policy)));
    }
    driver::check_schedule(args.driver, &args.policy, false)?;
    let cpus = cpus::choose(topology, args.cpus.as_ref(), args.slots)?;
    let available = cpus.cpus().len();
    let slots = args.slots.unwrap_or(available);
    if !(1..=available).contains(&slots) {
        return Err(Usage(format!(
            "--slots {slots}: 1 to {available}, the CPUs there are ({cpus})"
        )));
    }
    let plan = SoakPlan {
        acquisitions: args.acquisitions,
        levels: resolve_levels(&args.vcpus, &cpus.first(slots))?,
        slots: slots as u32,
        policy: args.policy.clone(),
        driver: args.driver,
        slice: args.slice,
        seed: args.seed,
        faults: FaultSpec::collect(&args.fault)
            .map_err(|error| Usage(format!("--fault: {error}")))?,
        round: args.round.0,
    };
    Ok((plan, cpus))
}

fn summary(plan: &SoakPlan, tally: &Tally) -> String {
    let Tally { rounds, acquisitions, seconds, halts, kicks, violations, disorder, .. } = tally;
    let levels: Vec<String> = plan.levels.iter().map(VcpuCount::to_string).collect();
    let Totals { preemptions, lhp, lwp, queued, entering, .. } = tally.preempted;
    format!(
        "{acquisitions} in {seconds:.1} s, {rate}/s: {rounds} of {levels} on {slots} under {policy}, seed \
         {seed}\n\
         {halts}, {kicks}; {faults}\n\
         {preemptions}: {lhp} of lock holders, {lwp} of the next in line, {queued} of waiters further \
         back, at most {entering} of these of the former two\n\
         {violations} of mutual exclusion, {disorder} out of order, no vCPU waited forever\n",
        acquisitions = count(*acquisitions, "acquisition"),
        rounds = count(*rounds, "round"),
        slots = count(plan.slots, "slot"),
        halts = count(*halts, "halt"),
        kicks = count(*kicks, "kick"),
        preemptions = count(preemptions, "preemption"),
        violations = count(*violations, "violation"),
        disorder = count(*disorder, "ticket"),
        rate = si(*acquisitions as f64 / seconds.max(f64::MIN_POSITIVE)),
        levels = match plan.levels.as_slice() {
            [one] => count(one.get(), "vCPU").to_string(),
            _ => format!("{} vCPUs", levels.join(", ")),
        },
        policy = study::point::schedule_name(&plan.policy, plan.driver),
        seed = plan.seed,
        faults = in_a_line(&tally.faults),
    )
}
