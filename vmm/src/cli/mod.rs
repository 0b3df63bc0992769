//! The command line: one file a subcommand.

mod bench;
mod boot;
mod cells;
mod compare;
mod descriptors;
mod doctor;
mod emulate;
mod emulated_test;
mod export;
mod fault;
mod host;
mod inside;
mod locks;
mod report;
mod results;
mod run;
mod schedule;
mod soak;
mod system_map;
mod tiny;
mod top;
mod trace;

use std::{
    io::{self, ErrorKind},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use thiserror::Error;

use crate::{
    emulated::agent,
    streams::{self, print, say},
};

/// Exit status of bad usage.
const USAGE: u8 = 2;
/// Exit status of a failure.
const FAILURE: u8 = 1;

/// A virtual machine monitor for one subject: spinlocks when vCPUs are
/// overcommitted.
#[derive(Debug, Parser)]
#[command(name = "pvticket", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Boot(boot::BootArgs),
    Compare(compare::CompareArgs),
    Run(Box<run::RunArgs>),
    Report(report::ReportArgs),
    Top(top::TopArgs),
    #[command(hide = true)]
    Cells(cells::CellsArgs),
    Soak(soak::SoakArgs),
    Locks(locks::LocksArgs),
    Export(export::ExportArgs),
    Doctor(doctor::DoctorArgs),
    Emulate(emulate::EmulateArgs),
    #[command(hide = true)]
    Exec(emulate::ExecArgs),
    #[command(hide = true)]
    EmulatedTest(emulated_test::EmulatedTestArgs),
    Trace(trace::TraceArgs),
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    Tiny(tiny::TinyArgs),
}

/// The user asked for something that cannot be: exit status 2.
#[derive(Debug, Error)]
#[error("{0}")]
struct Usage(String);

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    if agent::is_wanted() {
        agent::run();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            say(format_args!("pvticket: {}", one_line(&error)));
            return ExitCode::from(USAGE);
        }
        Err(help) => {
            return match help.print() {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => unwritten(&error),
                _ => ExitCode::SUCCESS,
            };
        }
    };
    descriptors::raise_limit();
    let result = match cli.command {
        Command::Boot(args) => boot::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Run(args) => run::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Cells(args) => cells::run(args),
        Command::Soak(args) => soak::run(&args),
        Command::Locks(args) => Ok(locks::run(&args)),
        Command::Export(args) => export::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Emulate(args) => emulate::run(args),
        Command::Exec(args) => emulate::exec(args),
        Command::EmulatedTest(args) => emulated_test::run(args),
        Command::Trace(args) => trace::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Tiny(args) => tiny::run(&args),
    };
    match result {
        Ok(0) if let Some(error) = streams::failure() => unwritten(error),
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            say(format_args!("pvticket: {}", descriptors::advised(chain(&error))));
            ExitCode::from(if error.is::<Usage>() { USAGE } else { FAILURE })
        }
    }
}

/// What the command had to say has not been written, for another reason than that nobody reads it.
fn unwritten(error: &io::Error) -> ExitCode {
    say(format_args!("pvticket: cannot write to stdout: {error}"));
    ExitCode::from(FAILURE)
}

/// An error and what it adds by its sources, in one line. Our errors carry their
/// source's text already where it helps.
fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, link| {
        if text.is_empty() {
            link
        } else if text.contains(&link) {
            text
        } else {
            format!("{text}: {link}")
        }
    })
}

/// clap's message without its "error: ", its usage block and its line breaks.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let message: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let message = message.join(" ");
    format!("{} (see pvticket --help)", message.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line() {
        let error = Cli::try_parse_from(["pvticket", "boot", "--cpus", "0"]).unwrap_err();
        assert_eq!(
            one_line(&error),
            "invalid value '0' for '--cpus <N>': 0 vCPUs: a machine has 1 to 128 \
             (see pvticket --help)"
        );
        let error = Cli::try_parse_from(["pvticket", "fly"]).unwrap_err();
        assert!(!one_line(&error).contains('\n'));
    }
}
