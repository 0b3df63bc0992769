//! `pvticket bench hypercalls`.

use anyhow::Context;
use clap::Args;

use super::{Common, option, run_inside, write_json};
use crate::cli::{Usage, confinement, eprint_line, print};
use base::{
    backend::PvBackend,
    units::{ByteSize, CpuList},
};
use confine::Files;
use emulated::OutputMode;
use experiment::{
    Interrupt,
    bench::hypercall_times::{self, HyperCase, HyperPlan},
    cpus,
    host::{gather_facts, topology},
    host_choice::{self, GuestClass, with_quota_note},
    inside::EmulatedCommand,
    tables::hypercall_times as tables,
};
use kvm::KvmKind;
use os::signals;
use study::{
    plan::Seconds,
    point::{HostKernel, HostKind},
};

/// Rounds per run of `--runs`, each with a quarter of its time: short, because a shared host moves a VM's
/// CPUs, and so changes cache line latencies, within a second (`experiment::host::hop`).
const ROUNDS_PER_RUN: u32 = 4;

/// Measure the costs of an exit, a kick, a halt, and the time from a kick to the kicked vCPU's first
/// instruction, by backend, and a thread's wakeup for comparison
#[derive(Debug, Args)]
pub(super) struct HyperBenchArgs {
    /// Backends to measure: vmm, doorbell, kvm [default: all supported by this KVM; only vmm on
    /// software KVMs, which cannot run ring 0]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pv_backends: Option<Vec<PvBackend>>,

    /// Runs of each case, 1 to 10000, in four short rounds each
    #[arg(long, value_name = "K", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// Measured time of a case per run, in seconds
    #[arg(long, value_name = "S", default_value = "0.2")]
    seconds: Seconds,

    /// Two host CPUs, e.g. 0,2 [default: two cores that share a cache]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// Seed of the order of cases
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: HyperBenchArgs) -> anyhow::Result<u8> {
    confinement::set_mode()?;
    let kind = KvmKind::detect();
    let backends = args.pv_backends.as_deref().unwrap_or_default();
    if backends.contains(&PvBackend::Off) {
        return Err(Usage("--pv-backends: off is not supported, it makes no calls".into()).into());
    }
    let needs_ring_0 = backends.iter().any(|backend| backend.needs_ring_0());
    let class = if needs_ring_0 { GuestClass::Ring0 } else { GuestClass::Payload };
    let place = host_choice::choose_here(args.common.host, class, kind).place;
    let host_kernel = args.common.host_kernel.choice()?;
    host_kernel.check(place == HostKind::Emulated)?;
    match place {
        HostKind::Emulated => run_emulated(&args, host_kernel.kernel()?),
        HostKind::Direct => {
            host_choice::check_direct(class, kind)?;
            run_direct(&args)
        }
    }
}

fn run_emulated(args: &HyperBenchArgs, kernel: HostKernel) -> anyhow::Result<u8> {
    let mut inside = EmulatedCommand::new(kernel, ByteSize(::hypercalls::payload::MEMORY));
    inside.errand().stdout = OutputMode::Progress;
    inside.errand().stderr = OutputMode::Progress;
    let backends = args.pv_backends.as_deref().map(|backends| {
        let names: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
        option("--pv-backends", names.join(","))
    });
    let cpus = args.cpus.as_ref().map(|cpus| option("--cpus", cpus.to_string()));
    let options = [
        option("--runs", args.runs.to_string()),
        option("--seconds", args.seconds.0.as_secs_f64().to_string()),
        option("--seed", args.seed.to_string()),
    ];
    let options = options.into_iter().chain(backends).chain(cpus).flatten();
    run_inside(inside, "hypercalls", args.common.json.as_deref(), options)
}

impl HyperBenchArgs {
    /// The backends to measure, without duplicates, in a fixed order.
    fn backends(&self, kind: KvmKind) -> Vec<PvBackend> {
        let order = [PvBackend::Vmm, PvBackend::Doorbell, PvBackend::Kvm];
        let is_measured = |backend: &PvBackend| match &self.pv_backends {
            Some(backends) => backends.contains(backend),
            None => kind.runs_linux() || !backend.needs_ring_0(),
        };
        order.into_iter().filter(is_measured).collect()
    }

    /// Resolves the plan on this host.
    fn resolve(&self) -> Result<HyperPlan, Usage> {
        Ok(HyperPlan {
            backends: self.backends(KvmKind::detect()),
            rounds: self.runs * ROUNDS_PER_RUN,
            duration: self.seconds.0 / ROUNDS_PER_RUN,
            seed: self.seed,
            cpus: cpus::choose(&topology(), self.cpus.as_ref(), Some(2))?,
        })
    }
}

fn run_direct(args: &HyperBenchArgs) -> anyhow::Result<u8> {
    let plan = args.resolve()?;
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let host = with_quota_note(gather_facts(&plan.cpus), &plan.cpus);
    let on_round = |round: u32, case: HyperCase| {
        let pv = case.backend().map_or("", PvBackend::name);
        eprint_line(format_args!("round {} of {}: {pv} {}", round + 1, plan.rounds, case.name()));
    };
    let run = || hypercall_times::run(&plan, &interrupt, &mut { on_round });
    let figures =
        confine::run(&Files::for_guests(), run).context("cannot confine the benchmark")??;
    print(&tables::table(&figures, &plan, &host));
    write_json(args.common.json.as_deref(), || tables::json(&figures, &plan, &host))?;
    Ok(if figures.interrupted { signals::exit_status() } else { 0 })
}
