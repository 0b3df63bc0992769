//! `pvticket task DIR --unit N`: one unit of a sweep, whatever starts it.

use std::path::PathBuf;

use clap::Args;

use experiments::sweep::{self, TaskOptions};

/// Run one unit of a sweep that `pvticket run SPEC --on ENGINE` has prepared. Any scheduler may start
/// it, on any node that sees the directory; a unit that is done already is not run again.
#[derive(Debug, Args)]
pub struct TaskArgs {
    /// The sweep's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The unit's number, from 0
    #[arg(long, value_name = "N")]
    unit: u32,

    /// The submission that it belongs to
    #[arg(long, value_name = "K", default_value_t = 0, hide = true)]
    submission: u32,

    /// The process that started the task; the task ends when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<u32>,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &TaskArgs) -> anyhow::Result<u8> {
    let TaskArgs { dir, unit, submission, parent } = args;
    let (dir, unit, submission, parent) = (dir.clone(), *unit, *submission, *parent);
    sweep::task(&TaskOptions { dir, unit, submission, parent })
}
