//! `pvticket trace`: summarizes a timeline as text.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;

use super::{Usage, print, system_map};
use machine::guest::symbols::Symbols;
use os::streams::print_json;
use report::{perfetto, trace_text};

/// Summarize a timeline of --trace: the worst handoffs and preemptions (ui.perfetto.dev opens
/// the file)
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Timeline file
    file: PathBuf,

    /// Number of worst events of each kind, per run
    #[arg(long, value_name = "N", default_value_t = 10, allow_hyphen_values = true)]
    top: u32,

    /// System.map of the Linux guest's kernel, for the names of locks (`make kernel` writes it
    /// to ~/.cache/pvticket/kernel/current)
    #[arg(long, value_name = "F")]
    system_map: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &TraceArgs) -> anyhow::Result<u8> {
    let name = args.file.display();
    let symbols = args.system_map.as_deref().map(symbols).transpose()?;
    let file = File::open(&args.file).with_context(|| format!("cannot read {name}"))?;
    let mut digest = perfetto::digest(BufReader::new(file), args.top as usize)
        .with_context(|| format!("cannot read {name}"))?;
    if let Some(symbols) = symbols {
        digest.name_locks(|address| symbols.name(address));
    }
    if args.json {
        print_json(&(serde_json::to_string_pretty(&digest)? + "\n"))
    } else {
        print(&trace_text::render(&digest))
    }
    Ok(0)
}

fn symbols(map: &Path) -> Result<Symbols, Usage> {
    system_map::read(map, Symbols::parse, "no kernel symbols")
}

/// The option for a timeline file.
pub(super) const OPTION: &str = "--trace";
