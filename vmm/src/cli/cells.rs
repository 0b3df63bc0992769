//! `pvticket cells`: a worker of `pvticket run`, here or in the emulated host.

use std::{
    env,
    io::{self, BufReader, Write},
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
    streams::Stream,
    units::ByteSize,
};

/// Says how long a trace may be, if that is less than the product's own limit.
const TRACE_LIMIT: &str = "PVTICKET_TRACE_LIMIT";

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
    let most = trace_limit()?;
    let draw = |run, title: &str, timeline: &Timeline| {
        let mut drawn = Limited::to(most);
        perfetto::write(&mut drawn, run, title, timeline)?;
        Ok(drawn.bytes)
    };
    worker::work(&kernels, &draw, input, Stream::Stdout, &interrupt)?;
    Ok(if interrupt.raised() { FAILURE } else { 0 })
}

/// Bytes of a trace at most, by the environment.
fn trace_limit() -> anyhow::Result<ByteSize> {
    let Some(text) = env::var_os(TRACE_LIMIT) else { return Ok(worker::MOST_TRACE) };
    let most = text.to_str().and_then(|text| text.parse::<ByteSize>().ok());
    most.filter(|most| *most <= worker::MOST_TRACE).with_context(|| {
        let most = worker::MOST_TRACE;
        format!("{TRACE_LIMIT}={}: it is no size of at most {most}", text.display())
    })
}

/// A trace in memory, which ends where it gets too long.
#[derive(Debug)]
struct Limited {
    bytes: Vec<u8>,
    most: ByteSize,
}

impl Limited {
    const fn to(most: ByteSize) -> Self {
        Self { bytes: Vec::new(), most }
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.most;
        if (self.bytes.len() + bytes.len()) as u64 > most.0 {
            let why = format!("it is longer than {most}; measure for a shorter time (seconds)");
            return Err(io::Error::other(why));
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_a_limit() {
        let mut drawn = Limited::to(worker::MOST_TRACE);
        let megabyte = vec![0; 1 << 20];
        let whole = (0..).take_while(|_| drawn.write_all(&megabyte).is_ok()).count();
        assert_eq!((whole, drawn.bytes.len() as u64), (64, worker::MOST_TRACE.0));
        let error = drawn.write_all(b"x").unwrap_err().to_string();
        assert!(error.contains("longer than 64 MiB"), "{error}");
    }
}
