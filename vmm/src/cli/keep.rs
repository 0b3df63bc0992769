//! `pvticket keep`, hidden: renames a result file for a confined process.

use std::{io, path::PathBuf};

use anyhow::Context;
use clap::Args;

use os::keeper;

/// Rename a result after stdin reports its completion: for boot, which opens no directory
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Temporary file
    temporary: PathBuf,

    /// Final name
    target: PathBuf,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &KeepArgs) -> anyhow::Result<u8> {
    let result = keeper::keep(&args.temporary, &args.target, io::stdin(), io::stdout());
    result.context("cannot report whether a result was renamed").map(|()| 0)
}
