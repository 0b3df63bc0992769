//! `pvticket sim calibrate`: writes the machine file of this host.

use std::{fs, path::PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::{Usage, eprint_line, print};
use base::units::CpuList;
use experiment::{
    Interrupt, calibrate, cell::simulated::calibrated as machine_of_this_host, host::allowed_cpus,
    rung2,
};
use kvm::KvmKind;
use os::{results, signals};
use study::plan::check_cpus;

/// Measure this host's costs of cache line transfers, exits and context switches, and its interruptions
/// of CPUs, and write the machine file for --machine this. Takes some seconds; the host should be idle
#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    /// Output file [default: the file that --machine this reads]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// CPUs to measure, which become the machine's CPUs [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// Instead, validate the machine file: measure cells on this host (some minutes) and compare them
    /// with simulations; fails if a figure is off (see vmm/sim/docs/VALIDATION.md)
    #[arg(long, conflicts_with_all = ["output", "cpus"])]
    validate: bool,

    /// With --validate: use only some of the cells
    #[arg(long, requires = "validate")]
    short: bool,
}

pub(super) fn run(args: &CalibrateArgs) -> anyhow::Result<u8> {
    if args.validate {
        return rung2::validate(args.short, print);
    }
    if matches!(KvmKind::detect(), KvmKind::Absent | KvmKind::Denied) {
        bail!(
            "/dev/kvm: not available, but required to measure the cost of an exit; see `pvticket doctor`"
        );
    }
    let allowed = allowed_cpus().map_err(Usage::from)?;
    let cpus = args.cpus.clone().unwrap_or_else(|| allowed.clone());
    check_cpus(&cpus, &allowed).map_err(Usage::from)?;
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let machine = match calibrate::calibrate(&cpus, &interrupt) {
        Err(calibrate::CalibrateError::Interrupted) => return Ok(signals::exit_status()),
        machine => machine?,
    };
    let text = machine.to_toml();
    let file = match &args.output {
        Some(file) => file.clone(),
        None => {
            let file = machine_of_this_host()?;
            let folder = file.parent().context("no folder for machine files")?;
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            file
        }
    };
    results::write(&file, text.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))?;
    print(&text);
    eprint_line(format_args!("written to {}", file.display()));
    for doubt in machine.doubts {
        eprint_line(format_args!("pvticket: {doubt}: repeat with nothing else on these CPUs"));
    }
    Ok(0)
}
