//! `pvticket cells`, hidden: a worker of `pvticket run`, here or in the emulated host.

use clap::Args;

use super::confinement;
use experiment::worker_process::{self, Setup};

/// Run the cells of an experiment that come on stdin, one line of JSON per cell.
#[derive(Debug, Args)]
pub struct CellsArgs {
    /// JSON: the worker's host and files [default: this host, no files]
    setup: Option<Setup>,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: CellsArgs) -> anyhow::Result<u8> {
    confinement::choose()?;
    worker_process::run(args.setup.unwrap_or_default())
}
