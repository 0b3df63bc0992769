//! `pvticket bench confinement`.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Common, keep};
use crate::cli::{Usage, inside::Task, print, say};
use confine::Seccomp;
use emulated::OutputMode;
use experiments::{
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
    host::{gather_facts, resolve_cpus},
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

/// A resolved measurement, for whichever host runs it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct ConfinementBenchPlan {
    runs: u32,
    duration: Duration,
    /// The Linux guest's kernel; None: none is booted.
    kernel: Option<PathBuf>,
    json: Option<PathBuf>,
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
    let plan = ConfinementBenchPlan {
        runs: args.runs,
        duration: args.seconds.0,
        kernel: args.linux.then(artifacts::built_kernel).transpose()?,
        json: args.common.json,
    };
    match place {
        Place::Emulated => emulated(plan, args.common.host_kernel.choice().kernel()?),
        Place::Direct => {
            host::check_direct(class, kind)?;
            direct(&plan)
        }
    }
}

/// Measures in the emulated host, with the same files.
fn emulated(plan: ConfinementBenchPlan, kernel: HostKernel) -> anyhow::Result<u8> {
    let mut inside = Inside::new(kernel, GUEST_MEMORY);
    if plan.kernel.is_some() {
        inside.take_busybox(&artifacts::busybox()?);
    }
    let errand = inside.errand();
    errand.stdout = OutputMode::Progress;
    errand.stderr = OutputMode::Progress;
    let plan_inside = ConfinementBenchPlan {
        kernel: plan.kernel.as_deref().map(|file| inside.take_kernel(file)),
        json: plan.json.as_deref().map(|file| inside.bring_back(file, "json")),
        ..plan
    };
    inside.run_task(&Task::BenchConfinement(plan_inside))
}

/// Measures on this host's KVM.
pub(in crate::cli) fn direct(asked: &ConfinementBenchPlan) -> anyhow::Result<u8> {
    let plan = ConfinementPlan {
        cpus: resolve_cpus(None)?,
        runs: asked.runs,
        duration: asked.duration,
        kernel: asked.kernel.clone(),
    };
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let host = with_note_of_quota(gather_facts(&plan.cpus), &plan.cpus);
    let started = |run| say(format_args!("pair {run} of {}", plan.runs));
    let figures = confinement::run(&plan, &interrupt, started)?;
    print(&tables::table(&figures, &plan, &host));
    keep(asked.json.as_deref(), || tables::json(&figures, &plan, &host))?;
    Ok(if figures.interrupted { signals::exit_status() } else { 0 })
}
