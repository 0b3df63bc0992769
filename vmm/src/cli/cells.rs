//! `pvticket cells`: a worker of `pvticket run`, here or in the emulated host.

use std::{
    io::{self, BufReader},
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;

use super::{FAILURE, host::HostMode, inside::Inside};
use crate::{
    guest::{
        artifacts::{built_kernel, stock_kernel},
        kernels::Kernels,
    },
    lab::{Interrupt, run::worker, timeline::Timeline},
    report::perfetto,
    units::ByteSize,
};

/// Run the cells of an experiment that come on stdin, a line of JSON each.
#[derive(Debug, Args)]
pub struct CellsArgs {
    /// Where they run
    #[arg(long, value_enum, default_value_t = HostMode::Direct)]
    host: HostMode,

    /// Memory that the guests need, in the emulated host
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: ByteSize,

    /// The guest kernel with ticketlocks
    #[arg(long, value_name = "F")]
    kernel: Option<PathBuf>,

    /// The guest kernel with mainline's spinlocks
    #[arg(long, value_name = "F")]
    stock_kernel: Option<PathBuf>,
}

/// Runs the subcommand; gives the exit status.
pub fn run(args: CellsArgs) -> anyhow::Result<u8> {
    // Those that are not there are missed by the cells that need them.
    let kernels = Kernels {
        ticket: args.kernel.or_else(|| built_kernel().ok()),
        stock: args.stock_kernel.or_else(|| stock_kernel().ok()),
    };
    if args.host == HostMode::Emulated {
        let words = ["cells".into()];
        return Inside::new(words, args.memory).with_kernels(&kernels).run();
    }
    let interrupt = Interrupt::on_signals().context("cannot catch signals")?;
    let input = BufReader::new(io::stdin());
    let draw = |run, title: &str, timeline: &Timeline| {
        let mut bytes = Vec::new();
        perfetto::write(&mut bytes, run, title, timeline)?;
        Ok(bytes)
    };
    worker::work(&kernels, &draw, input, io::stdout().lock(), &interrupt)?;
    Ok(if interrupt.raised() { FAILURE } else { 0 })
}
