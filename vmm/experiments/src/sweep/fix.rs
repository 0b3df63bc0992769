//! What is fixed for all tasks of a sweep when it is planned.

use std::{env, fs, path::Path};

use anyhow::{Context, bail};

use crate::{
    Usage,
    options::RunOptions,
    plan::Plan,
    prepare,
    workers::{KernelFiles, kernels},
};
use base::{
    guest_kernel::{Flavour, GuestKernel},
    rng::SplitMix64,
    shown,
};
use lab::{
    host::{binary_facts, kernel_facts},
    sweep::{
        EngineKind,
        dir::{JOBS, SweepDir},
        units::{is_simulated, units},
    },
};
use machine::clock;
use study::{
    guest::kernels::{KernelFile, Kernels},
    point::HostKind,
    store::{record::RunLine, sweep::record::SweepLine},
};

/// The name of a guest kernel in a sweep's directory.
fn name(kernel: GuestKernel, flavour: Flavour) -> String {
    let of_flavour = match flavour {
        Flavour::Ticket => "kernel",
        Flavour::Stock => "stock-kernel",
    };
    if kernel.is_unnamed() { of_flavour.to_owned() } else { format!("{of_flavour}-{kernel}") }
}

/// Fixes the units, the CPUs, and the program and its kernels by their sums.
pub(super) fn fix(plan: &Plan, args: &RunOptions, kind: EngineKind) -> anyhow::Result<SweepLine> {
    let Plan { run, experiment, .. } = plan;
    if let Some(point) = experiment.points.iter().find(|point| point.policy.replays().is_some()) {
        bail!(Usage(format!(
            "{}: a sweep cannot replay a recording: run it without --on",
            point.policy
        )));
    }
    prepare::check_sweep(&experiment.points)?;
    let simulated = is_simulated(experiment);
    if args.sweep.unit_cells.is_some() && !simulated {
        bail!(Usage(
            "--unit-cells: a task runs a whole round of measured cells, which are compared with \
             each other; only simulated rounds are divided"
                .into()
        ));
    }
    let kernels = kernels(&args.kernels, experiment)?;
    let mut sweep = SweepLine {
        id: id(run),
        command: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        engine: kind.name().to_owned(),
        options: args.sweep.slurm.clone().unwrap_or_default(),
        cpus: if simulated { 1 } else { run.cpus.len() as u32 },
        kvm: !simulated && experiment.points.iter().any(|point| point.host == HostKind::Direct),
        binary: binary_facts().context("cannot read this program's own file")?,
        kernel: None,
        stock_kernel: None,
        other_kernels: Vec::new(),
        units: units(experiment, args.sweep.unit_cells),
    };
    for file in kernels.iter() {
        let path = file.path();
        let facts =
            kernel_facts(path).with_context(|| format!("cannot read {}", path.display()))?;
        sweep.set_kernel(file.kernel, file.flavour, facts);
    }
    Ok(sweep)
}

/// Copies the program and its kernels into the sweep's directory.
pub(super) fn keep(dir: &SweepDir, sweep: &SweepLine) -> anyhow::Result<()> {
    dir.keep(Path::new(&sweep.binary.path), &dir.program())?;
    for (kernel, flavour, facts) in sweep.kernels() {
        dir.keep(Path::new(&facts.path), &dir.kernel(&name(kernel, flavour)))?;
    }
    Ok(())
}

/// Checks that the program in a sweep's directory, which tasks will run, and the one that the sweep was planned with are this
/// one: a directory is data, and whoever can write to it would choose what the user runs. (Slurm's script compares the program
/// again before it starts it.)
pub(super) fn check_program(dir: &SweepDir, sweep: &SweepLine) -> anyhow::Result<()> {
    let own = binary_facts().context("cannot read this program's own file")?;
    let program = dir.program();
    // What a link leads to may be changed by whoever has that file.
    if fs::symlink_metadata(&program).is_ok_and(|found| !found.is_file()) {
        bail!(Usage(format!(
            "{} is not a regular file: put the program that the sweep was planned with there",
            program.display()
        )));
    }
    let found =
        kernel_facts(&program).map_or_else(|| "cannot be read".into(), |facts| facts.sha256);
    if found != own.sha256 {
        bail!(Usage(format!(
            "{} is not the program that resumes the sweep ({found}, not {}): resume it with the one that it was \
             planned with",
            program.display(),
            own.sha256
        )));
    }
    let planned = shown::line(&sweep.binary.sha256);
    if planned != own.sha256 {
        bail!(Usage(format!(
            "the sweep was planned with another program ({planned}, not {}): resume it with that one",
            own.sha256
        )));
    }
    Ok(())
}

/// The kernels in a sweep's directory.
pub(super) fn kept(dir: &SweepDir, sweep: &SweepLine) -> Kernels {
    let file =
        |(kernel, flavour, _)| KernelFile::new(kernel, flavour, dir.kernel(&name(kernel, flavour)));
    sweep.kernels().map(file).collect()
}

/// Refuses options that name kernels: a sweep that is resumed has those in its directory.
pub(super) fn check_kernels(files: &KernelFiles) -> Result<(), Usage> {
    if files.is_empty() {
        Ok(())
    } else {
        Err(Usage("--resume: the kernels of a sweep are in its directory".into()))
    }
}

/// A name that is unique on a cluster: jobs are found by it, because a head may die before it has
/// stored the job's number.
fn id(run: &RunLine) -> String {
    let seed = clock::since_1970() ^ u64::from(std::process::id()) << 44;
    let random = SplitMix64::new(seed).next_u64();
    // Slurm takes a comma for the end of a name.
    let is_plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
    let name: String = run.name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("{JOBS}{name}-{:08x}", random >> 32)
}
