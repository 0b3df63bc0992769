//! `pvticket keep`, hidden: puts a result in its place for a confined process.

use std::{io, path::PathBuf};

use anyhow::Context;
use clap::Args;

use os::keeper;

/// Name a result once stdin says that it is complete: for boot, which opens no directory.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// The file that is being written
    temporary: PathBuf,

    /// The name that it is to have
    target: PathBuf,
}

/// Runs the subcommand; gives the exit status.
pub fn run(args: &KeepArgs) -> anyhow::Result<u8> {
    let kept = keeper::keep(&args.temporary, &args.target, io::stdin(), io::stdout());
    kept.context("cannot say whether a result has its name").map(|()| 0)
}
