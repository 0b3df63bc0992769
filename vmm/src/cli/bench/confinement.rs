//! `pvticket bench confinement`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::{Common, keep, option, run_inside};
use crate::cli::{Usage, print, say};
use confine::Seccomp;
use emulated::OutputMode;
use experiments::{
    cpus,
    host::{self, GuestClass, Place, with_note_of_quota},
    inside::Inside,
};
use kvm::KvmKind;
use lab::{
    Interrupt,
    bench::{
        boot_times::GUEST_MEMORY,
        confinement::{self, ConfinementPlan},
    },
    host::{gather_facts, topology},
    tables::confinement as tables,
};
use os::{artifacts, signals};
use study::{plan::Seconds, point::HostKernel};

/// Measure what confinement costs: exits, kicks, halts and boots with it and without, in turn.
#[derive(Debug, Args)]
pub(super) struct ConfinementBenchArgs {
    /// Pairs of each: one side confined, one not
    #[arg(long, value_name = "K", default_value_t = 40,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// Time for which a side measures calls
    #[arg(long, value_name = "S", default_value = "0.02")]
    seconds: Seconds,

    /// Also boot a Linux guest, two boots a pair, where the KVM runs kernels
    #[arg(long)]
    linux: bool,

    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: ConfinementBenchArgs) -> anyhow::Result<u8> {
    args.common.seccomp.choose()?;
    if confine::chosen() == Seccomp::Off {
        return Err(Usage("--seccomp off: there is nothing to compare with".into()).into());
    }
    let kind = KvmKind::detect();
    let class = if args.linux { GuestClass::Ring0 } else { GuestClass::Payload };
    let place = host::choose_here(args.common.host, class, kind).place;
    args.common.host_kernel.choice().check(place == Place::Emulated)?;
    let linux = args.linux.then(artifacts::built_kernel).transpose()?;
    match place {
        Place::Emulated => emulated(&args, linux, args.common.host_kernel.choice().kernel()?),
        Place::Direct => {
            host::check_direct(class, kind)?;
            direct(&args, linux)
        }
    }
}

/// Measures in the emulated host, with the same files.
fn emulated(
    args: &ConfinementBenchArgs,
    linux: Option<PathBuf>,
    kernel: HostKernel,
) -> anyhow::Result<u8> {
    let mut inside = Inside::new(kernel, GUEST_MEMORY);
    let errand = inside.errand();
    errand.stdout = OutputMode::Progress;
    errand.stderr = OutputMode::Progress;
    let mut options = [
        option("--runs", args.runs.to_string()),
        option("--seconds", args.seconds.0.as_secs_f64().to_string()),
    ]
    .concat();
    if let Some(file) = linux {
        inside.take_busybox(&artifacts::busybox()?);
        inside.take_kernel(&file);
        options.push("--linux".into());
    }
    run_inside(inside, "confinement", args.common.json.as_deref(), options)
}

/// Measures on this host's KVM.
fn direct(args: &ConfinementBenchArgs, linux: Option<PathBuf>) -> anyhow::Result<u8> {
    let plan = ConfinementPlan {
        cpus: cpus::choose_without_option(&topology(), None)?,
        runs: args.runs,
        duration: args.seconds.0,
        kernel: linux,
    };
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let host = with_note_of_quota(gather_facts(&plan.cpus), &plan.cpus);
    let started = |run| say(format_args!("pair {run} of {}", plan.runs));
    let figures = confinement::run(&plan, &interrupt, started)?;
    print(&tables::table(&figures, &plan, &host));
    keep(args.common.json.as_deref(), || tables::json(&figures, &plan, &host))?;
    Ok(if figures.interrupted { signals::exit_status() } else { 0 })
}
