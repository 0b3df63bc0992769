//! `pvticket bench`: what the VMM itself costs, and its schedules.

mod boot_times;
mod confinement;
mod hypercall_times;
mod schedules;
mod simulator;
mod trace;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

use super::{
    confinement::SeccompArgs,
    host::{HostKernelArgs, modes},
    results::ResultFile,
};
use base::units::{CpuList, Nanos};
use experiments::{
    cpus,
    host::{HostKernelChoice, HostMode},
    inside::Inside,
};
use sched::policy::DEFAULT_SLICE;

/// Measure the costs of the VMM itself, and the throughput under each policy.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    Boot(boot_times::BootBenchArgs),
    Confinement(confinement::ConfinementBenchArgs),
    Hypercalls(hypercall_times::HyperBenchArgs),
    Sched(schedules::SchedBenchArgs),
    Sim(simulator::SimBenchArgs),
    Trace(trace::TraceBenchArgs),
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: BenchArgs) -> anyhow::Result<u8> {
    match args.what {
        BenchCommand::Boot(args) => boot_times::run(args),
        BenchCommand::Confinement(args) => confinement::run(args),
        BenchCommand::Hypercalls(args) => hypercall_times::run(args),
        BenchCommand::Sched(args) => schedules::run(&args),
        BenchCommand::Sim(args) => simulator::run(&args),
        BenchCommand::Trace(args) => trace::run(&args),
    }
}

/// Options that all benches of schedules have.
#[derive(Debug, Args)]
struct Scheduled {
    #[arg(long, value_name = "LIST", help = cpus::HELP)]
    cpus: Option<CpuList>,

    /// How long a turn on a slot lasts
    #[arg(long, value_name = "T", default_value_t = DEFAULT_SLICE)]
    slice: Nanos,

    /// Seed of the order of the runs and of the schedules
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    common: Common,
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

    #[command(flatten)]
    seccomp: SeccompArgs,
}

impl Common {
    /// Where experiments run.
    fn place(&self) -> (HostMode, HostKernelChoice) {
        (self.host, self.host_kernel.choice())
    }
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

/// The CPUs of benches, for tests.
#[cfg(test)]
impl BenchArgs {
    pub(super) fn sched(
        &self,
        topology: &doctor::topology::Topology,
    ) -> Result<CpuList, super::Usage> {
        let BenchCommand::Sched(args) = &self.what else { panic!("{self:?}") };
        schedules::plan(args, topology).map(|(_, cpus)| cpus)
    }

    pub(super) fn trace(
        &self,
        topology: &doctor::topology::Topology,
    ) -> Result<CpuList, super::Usage> {
        let BenchCommand::Trace(args) = &self.what else { panic!("{self:?}") };
        trace::plan(args, topology).map(|(_, cpus)| cpus)
    }
}
