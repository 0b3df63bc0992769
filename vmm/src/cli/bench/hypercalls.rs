//! `pvticket bench hypercalls`.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;

use super::{keep, there};
use crate::{
    cli::{
        Usage,
        host::{self, GuestClass, HostMode, Place},
        print, say,
    },
    kvm::KvmKind,
    lab::{
        Contender, Interrupt, LevelSamples, Observer,
        compare::Run,
        handoffs,
        host::HostFacts,
        hyper_bench::{self, Case, HyperPlan},
        plan::{Seconds, resolve_cpus},
    },
    report::hyper_bench as report,
    signals,
    units::{ByteSize, CpuList, VcpuCount},
    vm::PvBackend,
};

/// Rounds that make up each of `--runs`, with as much shorter cases: a shared host goes from a slow
/// to a fast mode within a second, and cases that are compared should meet the same one.
const PARTS: u32 = 4;

/// How long each run of the second table is.
const HANDOFF_RUN: Duration = Duration::from_millis(300);

/// What an exit, a kick, a halt and the way from a kick to the kicked vCPU's first instruction
/// cost, by backend, beside what waking a thread costs.
#[derive(Debug, Args)]
pub(super) struct HyperBenchArgs {
    /// Whose calls: vmm, doorbell, kvm [default: all that run where it runs; on software KVMs,
    /// which cannot run ring 0, vmm]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pv_backends: Option<Vec<PvBackend>>,

    /// Runs of every case, each in four short rounds
    #[arg(long, value_name = "K", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// Time measured in a run of a case
    #[arg(long, value_name = "S", default_value = "0.2")]
    seconds: Seconds,

    /// The two host CPUs, for example 0,2 [default: the first two]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write every figure to this file as JSON
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,

    /// Where to run: this host's KVM, or an AMD-V machine that QEMU emulates
    #[arg(long, value_enum, default_value_t = HostMode::Auto)]
    host: HostMode,
}

pub(super) fn run(args: &HyperBenchArgs) -> anyhow::Result<u8> {
    let kind = KvmKind::detect();
    let asked = args.pv_backends.as_deref().unwrap_or_default();
    if asked.contains(&PvBackend::Off) {
        return Err(Usage("--pv-backends: off makes no calls".into()).into());
    }
    let needs_ring_0 = asked.iter().any(|backend| backend.needs_ring_0());
    let class = if needs_ring_0 { GuestClass::Ring0 } else { GuestClass::Payload };
    match host::choose(args.host, class, kind).place {
        Place::Emulated => emulated(args),
        Place::Direct => {
            host::check_direct(class, kind)?;
            direct(args, kind)
        }
    }
}

/// Says on stderr what it is at.
struct Told(u32);

impl Observer for Told {
    fn started(&mut self, vcpus: VcpuCount, contender: &Contender, round: u32) {
        say(format_args!("round {} of {}: {vcpus} vCPUs, {contender}", round + 1, self.0));
    }

    fn finished(&mut self, _: VcpuCount, _: &Run) {}

    fn level(&mut self, _: &LevelSamples) {}
}

fn backends(args: &HyperBenchArgs, kind: KvmKind) -> Vec<PvBackend> {
    let all = [PvBackend::Vmm, PvBackend::Doorbell, PvBackend::Kvm];
    let can = |backend: &PvBackend| kind.runs_linux() || !backend.needs_ring_0();
    match &args.pv_backends {
        // In this order, and each once.
        Some(asked) => all.into_iter().filter(|backend| asked.contains(backend)).collect(),
        None => all.into_iter().filter(can).collect(),
    }
}

fn direct(args: &HyperBenchArgs, kind: KvmKind) -> anyhow::Result<u8> {
    let cpus = resolve_cpus(args.cpus.clone()).map_err(|error| Usage(error.to_string()))?;
    let plan = HyperPlan {
        backends: backends(args, kind),
        rounds: args.runs * PARTS,
        duration: args.seconds.0 / PARTS,
        seed: args.seed,
        cpus,
    };
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let host = HostFacts::gather(&plan.cpus);
    let mut started = |round: u32, case: Case| {
        let whose = case.backend().map_or("", PvBackend::name);
        say(format_args!("round {} of {}: {whose} {}", round + 1, plan.rounds, case.name()));
    };
    let figures = hyper_bench::run(&plan, &interrupt, &mut started)?;
    let second = handoffs::plan(&plan.cpus, args.runs, HANDOFF_RUN, plan.seed)?;
    let compared = match plan.backends.contains(&PvBackend::Vmm) && !figures.interrupted {
        true => Some(handoffs::run(&second, &interrupt, &mut Told(args.runs))?),
        false => None,
    };
    let handed = compared.as_ref().map(|comparison| (&second, comparison));
    print(&report::table(&figures, &plan, &host, handed));
    keep(args.json.as_deref(), || report::json(&figures, &plan, &host, handed))?;
    let interrupted = figures.interrupted || compared.is_some_and(|its| its.interrupted);
    Ok(if interrupted { signals::exit_status() } else { 0 })
}

fn emulated(args: &HyperBenchArgs) -> anyhow::Result<u8> {
    let backends = args.pv_backends.as_ref().map(|backends| {
        let names: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
        ("--pv-backends", names.join(","))
    });
    let options = [
        ("--runs", args.runs.to_string()),
        ("--seconds", args.seconds.0.as_secs_f64().to_string()),
        ("--seed", args.seed.to_string()),
    ];
    let memory = ByteSize(hypercalls::payload::MEMORY);
    let options = options.into_iter().chain(backends);
    there("hypercalls", options, args.cpus.as_ref(), args.json.as_deref(), memory).run()
}
