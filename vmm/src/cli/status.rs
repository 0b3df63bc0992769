//! `pvticket status`: how far a run is.

use std::path::PathBuf;

use clap::Args;

use super::print;
use experiments::sweep;

/// Show how far the run in a directory is: cells, units, nodes, and what is left.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The run's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print only the numbers of the units that are left, one a line, for the scheduler that starts
    /// `pvticket task`
    #[arg(long)]
    missing: bool,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &StatusArgs) -> anyhow::Result<u8> {
    let status = sweep::status(&args.dir)?;
    if args.missing {
        status.missing.iter().for_each(|unit| print(&format!("{unit}\n")))
    } else {
        print(&status.text)
    }
    Ok(0)
}
