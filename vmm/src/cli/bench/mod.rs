//! `pvticket bench`: the VMM's own costs.

mod boot_times;
mod hypercall_times;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

use super::{
    host::{HostKernelArgs, modes},
    results::ResultFile,
};
use experiment::{host_choice::HostMode, inside::Inside};

/// Measure the costs of the VMM itself: boots and hypercalls
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    Boot(boot_times::BootBenchArgs),
    Hypercalls(hypercall_times::HyperBenchArgs),
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: BenchArgs) -> anyhow::Result<u8> {
    match args.what {
        BenchCommand::Boot(args) => boot_times::run(args),
        BenchCommand::Hypercalls(args) => hypercall_times::run(args),
    }
}

/// Options that all benches have.
#[derive(Debug, Args)]
struct Common {
    /// Write every figure to this file as JSON
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,

    /// Where to run: this host's KVM, or an AMD-V machine that QEMU emulates
    #[arg(long, value_parser = modes(), default_value_t = HostMode::Auto)]
    host: HostMode,

    #[command(flatten)]
    host_kernel: HostKernelArgs,
}

/// Runs a bench in the emulated host with these words as its options, and returns its exit status.
fn run_inside(
    mut inside: Inside,
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

/// Writes a bench's figures to the file that `--json` names, if it is given.
fn keep(
    json: Option<&Path>,
    text: impl FnOnce() -> serde_json::Result<String>,
) -> anyhow::Result<()> {
    match ResultFile::named("--json", json)? {
        Some(file) => file.write_text(&text()?),
        None => Ok(()),
    }
}
