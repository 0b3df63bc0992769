//! `pvticket soak`: PV ticketlocks for long, with faults.

use std::ffi::OsString;

use anyhow::{Context, bail};
use clap::Args;

use super::{
    Usage,
    fault::show,
    host::{self, GuestClass, HostMode, Place},
    inside::Inside,
    print, say,
};
use crate::{
    emulated::OutputMode,
    kvm::KvmKind,
    lab::{
        CellError, Interrupt, PayloadCell, Sample,
        plan::{Level, Seconds, resolve_cpus, resolve_levels},
        soak::{SoakPlan, Tally, soak},
    },
    report::{faults::in_a_line, si::si},
    sched::{PolicySpec, accounting::Totals, policy::DEFAULT_SLICE},
    signals,
    units::{ByteSize, CpuList, Nanos, VcpuCount},
    vcpu::fault::{Fault, FaultSpec},
};

/// Take one PV ticketlock for long while kicks and halts go wrong, and check all the while that
/// nobody is in the critical section with another, that tickets are served in their order, and that
/// nobody waits for ever.
#[derive(Debug, Args)]
pub struct SoakArgs {
    /// Acquisitions to do; the round that reaches them is finished
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    acquisitions: u64,

    /// vCPUs of the rounds' machines, in turn: 1 to 128, or vCPUs for each CPU
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "4x,2x,1.5x,1x",
        allow_hyphen_values = true
    )]
    vcpus: Vec<Level>,

    /// Host CPUs that carry the vCPUs, for example 0,2-5 [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// Slots of the schedule: the first of these CPUs [default: all]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    slots: Option<usize>,

    /// Who decides when vCPUs run, as for compare
    #[arg(long, value_name = "P", default_value = "random")]
    policy: PolicySpec,

    /// How long a turn on a slot lasts, for example 500us or 4ms
    #[arg(long, value_name = "T", default_value_t = DEFAULT_SLICE, allow_hyphen_values = true)]
    slice: Nanos,

    /// What goes wrong, as for compare
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "kick-delay:20us,kick-dup:0.05,spurious:0.05,halt-delay:20us",
        allow_hyphen_values = true
    )]
    fault: Vec<Fault>,

    /// Time of a round, after which a fresh machine goes on
    #[arg(long, value_name = "S", default_value = "5", allow_hyphen_values = true)]
    round: Seconds,

    /// Seed of the first round's schedule and faults; the next round's is one more
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where to run: this host's KVM, or an AMD-V machine that QEMU emulates
    #[arg(long, value_enum, default_value_t = HostMode::Auto)]
    host: HostMode,
}

/// Runs the subcommand; gives the exit status.
pub fn run(args: &SoakArgs) -> anyhow::Result<u8> {
    let plan = plan(args)?;
    match host::choose(args.host, GuestClass::Payload, KvmKind::detect()).place {
        Place::Direct => direct(&plan),
        Place::Emulated => emulated(args, &plan),
    }
}

fn plan(args: &SoakArgs) -> Result<SoakPlan, Usage> {
    let usage = |error: &dyn std::fmt::Display| Usage(error.to_string());
    if args.policy.is_host() || args.policy.replays().is_some() {
        return Err(usage(&format!("--policy {}: a soak has a schedule of its own", args.policy)));
    }
    let cpus = resolve_cpus(args.cpus.clone()).map_err(|error| usage(&error))?;
    let there = cpus.cpus().len();
    let slots = args.slots.unwrap_or(there);
    if !(1..=there).contains(&slots) {
        return Err(usage(&format!("--slots {slots}: 1 to {there}, the CPUs there are ({cpus})")));
    }
    Ok(SoakPlan {
        acquisitions: args.acquisitions,
        levels: resolve_levels(&args.vcpus, &cpus).map_err(|error| usage(&error))?,
        cpus,
        slots,
        policy: args.policy.clone(),
        slice: args.slice,
        seed: args.seed,
        faults: FaultSpec::collect(&args.fault)
            .map_err(|error| usage(&format!("--fault: {error}")))?,
        round: args.round.0,
    })
}

fn direct(plan: &SoakPlan) -> anyhow::Result<u8> {
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let cell = PayloadCell::default();
    let mut told = |vcpus, sample: &Sample, tally: &Tally| progress(plan, vcpus, sample, tally);
    let tally = soak(plan, &cell, &interrupt, &mut told).inspect_err(|error| {
        if let CellError::Stuck(_, trace) = error {
            show(trace);
        }
    })?;
    print(&summary(plan, &tally));
    if tally.is_broken() {
        bail!("the lock has broken its promises: this is a bug");
    }
    Ok(if tally.interrupted { signals::exit_status() } else { 0 })
}

fn progress(plan: &SoakPlan, vcpus: VcpuCount, sample: &Sample, tally: &Tally) {
    say(format_args!(
        "round {}, {vcpus} vCPUs: {}/s; {} of {} acquisitions",
        tally.rounds,
        si(sample.rate()),
        si(tally.acquisitions as f64),
        si(plan.acquisitions as f64),
    ));
}

fn summary(plan: &SoakPlan, tally: &Tally) -> String {
    let Tally { rounds, acquisitions, seconds, halts, kicks, violations, disorder, .. } = tally;
    let levels: Vec<String> = plan.levels.iter().map(VcpuCount::to_string).collect();
    let slots = plan.slots;
    let Totals { preemptions, lhp, lwp, entering, .. } = tally.preempted;
    format!(
        "{acquisitions} acquisitions in {seconds:.1} s, {rate}/s: {rounds} rounds of {levels} vCPUs on \
         {slots} slots under {policy}, seed {seed}\n\
         {halts} halts, {kicks} kicks; {faults}\n\
         {preemptions} preemptions: {lhp} of lock holders, {lwp} of the next in line, at most \
         {entering} more of either\n\
         {violations} violations of mutual exclusion, {disorder} tickets out of order, nobody \
         waited for ever\n",
        rate = si(*acquisitions as f64 / seconds.max(f64::MIN_POSITIVE)),
        levels = levels.join(", "),
        policy = plan.policy,
        seed = plan.seed,
        faults = in_a_line(&tally.faults),
    )
}

fn emulated(args: &SoakArgs, plan: &SoakPlan) -> anyhow::Result<u8> {
    let vcpus: Vec<String> = args.vcpus.iter().map(Level::to_string).collect();
    let mut words: Vec<OsString> = vec!["soak".into(), "--host".into(), "direct".into()];
    for (option, value) in [
        ("--acquisitions", plan.acquisitions.to_string()),
        ("--vcpus", vcpus.join(",")),
        ("--cpus", plan.cpus.to_string()),
        ("--slots", plan.slots.to_string()),
        ("--policy", plan.policy.to_string()),
        ("--slice", plan.slice.to_string()),
        ("--round", plan.round.as_secs_f64().to_string()),
        ("--seed", plan.seed.to_string()),
    ] {
        words.extend([option.into(), value.into()]);
    }
    if let Some(faults) = plan.faults {
        words.extend(["--fault".into(), faults.to_string().into()]);
    }
    Inside::new(words, ByteSize(hypercalls::payload::MEMORY))
        .connect(|errand| {
            errand.stdout = OutputMode::Progress;
            errand.stderr = OutputMode::Progress;
        })
        .run()
}
