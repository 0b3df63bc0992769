//! `pvticket bench`: what the VMM itself costs, and its schedules.

mod boot;
mod hypercalls;
mod sched;
mod trace;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

use super::{host::HostMode, inside::Inside, results::ResultFile};
use crate::{
    emulated::OutputMode,
    sched::policy::DEFAULT_SLICE,
    units::{ByteSize, CpuList, Nanos},
};

/// Measure what the VMM itself costs, and what its policies keep.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Boot(boot::BootBenchArgs),
    Hypercalls(hypercalls::HyperBenchArgs),
    Sched(sched::SchedBenchArgs),
    Trace(trace::TraceBenchArgs),
}

/// Runs the subcommand; gives the exit status.
pub fn run(args: BenchArgs) -> anyhow::Result<u8> {
    match args.what {
        What::Boot(args) => boot::run(&args),
        What::Hypercalls(args) => hypercalls::run(&args),
        What::Sched(args) => sched::run(&args),
        What::Trace(args) => trace::run(&args),
    }
}

/// What is said of a bench under schedules of ours.
#[derive(Debug, Args)]
struct Scheduled {
    /// Host CPUs that are the slots, for example 0,2-5 [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// How long a turn on a slot lasts
    #[arg(long, value_name = "T", default_value_t = DEFAULT_SLICE)]
    slice: Nanos,

    /// Seed of the order and of the schedules
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write every figure to this file as JSON
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,

    /// Where to run: this host's KVM, or an AMD-V machine that QEMU emulates
    #[arg(long, value_enum, default_value_t = HostMode::Auto)]
    host: HostMode,
}

impl Scheduled {
    /// `pvticket bench NAME` with these and other options in the emulated host.
    fn there(
        &self,
        name: &str,
        options: impl IntoIterator<Item = (&'static str, String)>,
        memory: ByteSize,
    ) -> Inside {
        let own = [("--slice", self.slice.to_string()), ("--seed", self.seed.to_string())];
        let options = options.into_iter().chain(own);
        there(name, options, self.cpus.as_ref(), self.json.as_deref(), memory)
    }
}

/// Writes a bench's figures to the file that --json names, if it does.
fn keep(
    json: Option<&Path>,
    text: impl FnOnce() -> serde_json::Result<String>,
) -> anyhow::Result<()> {
    match ResultFile::named("--json", json)? {
        Some(file) => file.write_text(&text()?),
        None => Ok(()),
    }
}

/// `pvticket bench NAME` with these options on the KVM of the emulated host.
fn there(
    name: &str,
    options: impl IntoIterator<Item = (&'static str, String)>,
    cpus: Option<&CpuList>,
    json: Option<&Path>,
    memory: ByteSize,
) -> Inside {
    let mut words = ["bench", name, "--host", "direct"].map(OsString::from).to_vec();
    let cpus = cpus.map(|cpus| ("--cpus", cpus.to_string()));
    let options = options.into_iter().chain(cpus);
    words.extend(options.flat_map(|(option, value)| [option.into(), value.into()]));
    let inside = Inside::new(words, memory).connect(|errand| {
        errand.stdout = OutputMode::Progress;
        errand.stderr = OutputMode::Progress;
    });
    match json {
        Some(json) => inside.with_result("--json", json),
        None => inside,
    }
}
