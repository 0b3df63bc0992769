//! `pvticket bench`: what the VMM itself costs, and its schedules.

mod boot;
mod hypercalls;
mod sched;

use clap::{Args, Subcommand};

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
}

/// Runs the subcommand; gives the exit status.
pub fn run(args: BenchArgs) -> anyhow::Result<u8> {
    match args.what {
        What::Boot(args) => boot::run(&args),
        What::Hypercalls(args) => hypercalls::run(&args),
        What::Sched(args) => sched::run(&args),
    }
}
