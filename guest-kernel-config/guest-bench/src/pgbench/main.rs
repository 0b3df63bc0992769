//! `pgbench-table`: throughput of PostgreSQL under native and PV ticketlocks, in the form of the PV
//! ticketlock series of 2012: transactions per second for rising numbers of clients, and a summary
//! of the averages.

#![forbid(unsafe_code)]

mod client;
mod installation;
mod locks;
mod memory;
mod options;
mod plan;
mod report;
mod run;
mod server;
mod statistics;
mod table;

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use options::Asked;

/// Exit status for bad usage.
const USAGE: u8 = 2;

/// Why there is no table.
#[derive(Debug)]
pub enum TableError {
    /// This guest cannot be used for it, or the command line is wrong.
    Usage(String),
    /// The measurement failed.
    Failed(String),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(text) | Self::Failed(text)) = self;
        f.write_str(text)
    }
}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

fn main() -> ExitCode {
    match options::parse(std::env::args_os().skip(1))
        .map_err(|error| TableError::Usage(format!("{error}; see pgbench-table --help")))
        .and_then(carry_out)
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pgbench-table: {failure}");
            match failure {
                TableError::Usage(_) => ExitCode::from(USAGE),
                TableError::Failed(_) => ExitCode::FAILURE,
            }
        }
    }
}

fn carry_out(asked: Asked) -> Result<(), TableError> {
    let text = match asked {
        Asked::Help => options::HELP.to_owned(),
        Asked::Run(options) => {
            let results = run::run(&options)?;
            if options.json { results.json()? } else { table::text(&results) }
        }
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}
