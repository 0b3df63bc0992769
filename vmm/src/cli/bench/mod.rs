//! `pvticket bench`: measures the VMM's costs.

mod boot_times;
mod hypercall_times;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

use super::{
    host::{HostKernelArgs, host_parser},
    results::ResultFile,
};
use experiment::{host_choice::HostMode, inside::EmulatedCommand};

/// Measure the costs of the VMM: boots and hypercalls
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    Boot(boot_times::BootBenchArgs),
    Hypercalls(hypercall_times::HyperBenchArgs),
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: BenchArgs) -> anyhow::Result<u8> {
    match args.command {
        BenchCommand::Boot(args) => boot_times::run(args),
        BenchCommand::Hypercalls(args) => hypercall_times::run(args),
    }
}

/// Options of all benchmarks.
#[derive(Debug, Args)]
struct Common {
    /// Write all figures to this file as JSON
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,

    /// Host of the guests: this host's KVM, or an AMD-V machine emulated by QEMU
    #[arg(long, value_parser = host_parser(), default_value_t = HostMode::Auto)]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,
}

/// Runs a benchmark with these options in the emulated host, and returns its exit status.
fn run_inside(
    mut inside: EmulatedCommand,
    bench: &str,
    json: Option<&Path>,
    options: impl IntoIterator<Item = OsString>,
) -> anyhow::Result<u8> {
    let json = json.map(|file| option("--json", inside.bring_back(file, "json")));
    let command = ["bench", bench, "--host", HostMode::Direct.name()].map(OsString::from);
    inside.warn_of_memory();
    inside.run(command.into_iter().chain(options).chain(json.into_iter().flatten()))
}

/// An option and its value as words of a command line.
fn option(name: &str, value: impl Into<OsString>) -> [OsString; 2] {
    [name.into(), value.into()]
}

/// Writes a benchmark's figures to the file of `--json`, if present.
fn write_json(
    json: Option<&Path>,
    text: impl FnOnce() -> serde_json::Result<String>,
) -> anyhow::Result<()> {
    match ResultFile::check("--json", json)? {
        Some(file) => file.write_text(&text()?),
        None => Ok(()),
    }
}
