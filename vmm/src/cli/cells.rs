//! `pvticket cells`, hidden: a worker process of `pvticket run`, on either host.

use clap::Args;

use super::confinement;
use experiment::worker_process::{self, Setup};

/// Run the cells of an experiment from stdin, one line of JSON per cell
#[derive(Debug, Args)]
pub struct CellsArgs {
    /// The worker's host and files as JSON [default: this host, no files]
    setup: Option<Setup>,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: CellsArgs) -> anyhow::Result<u8> {
    confinement::set_mode()?;
    worker_process::run(args.setup.unwrap_or_default())
}
