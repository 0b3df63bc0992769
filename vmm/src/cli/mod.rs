//! The command line: one file per subcommand.

mod bench;
mod boot_command;
mod cells;
mod check_command;
mod compare;
mod confinement;
mod doctor_command;
mod drill;
mod emulate;
mod export;
mod help;
mod host;
mod inside;
mod keep;
mod lock;
mod locks_command;
#[cfg(test)]
mod planning_tests;
mod priority;
mod report_command;
mod reproduce;
mod results;
mod run;
mod schedule;
mod search;
mod setup;
mod sim_command;
mod slurm_script;
mod system_map;
#[cfg(feature = "testing")]
pub mod testing;
mod tiny;
mod trace;
mod variables;

use std::{env, io, process::ExitCode};

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};

use emulated::agent;
use experiment::{FAILURE, Usage};
pub use kvm::sys::heap::Heap;
use kvm::{
    signal,
    sys::{fatal, inherited},
};
use os::{
    limits, signals,
    streams::{self, eprint_line, print},
};

/// Exit status of a usage error.
const USAGE_STATUS: u8 = 2;

/// A virtual machine monitor for studying spinlocks under vCPU overcommit
#[derive(Debug, Parser)]
#[command(name = "pvticket", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Boot(boot_command::BootArgs),
    Compare(Box<compare::CompareArgs>),
    Check(check_command::CheckArgs),
    Run(Box<run::RunArgs>),
    Report(report_command::ReportArgs),
    #[command(hide = true)]
    Cells(cells::CellsArgs),
    Locks(locks_command::LocksArgs),
    Lock(lock::LockArgs),
    Sim(sim_command::SimArgs),
    Search(search::SearchArgs),
    Reproduce(reproduce::ReproduceArgs),
    Export(export::ExportArgs),
    Doctor(doctor_command::DoctorArgs),
    Setup(setup::SetupArgs),
    Emulate(emulate::EmulateArgs),
    #[command(hide = true)]
    Drill(drill::DrillArgs),
    #[command(hide = true)]
    Keep(keep::KeepArgs),
    #[command(hide = true)]
    Exec(emulate::ExecArgs),
    Trace(trace::TraceArgs),
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    Inside(inside::InsideArgs),
    #[command(hide = true)]
    Tiny(tiny::TinyArgs),
}

/// The command line definition, for help, man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    help::with_help(Cli::command())
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    if agent::is_wanted() {
        agent::run();
    }
    if let Err(error) = lock::exec_if_wanted(env::args_os()) {
        return failure(&error);
    }
    if let Err(reason) = limits::prepare() {
        eprint_line(format_args!("pvticket: {reason}"));
        return ExitCode::from(FAILURE);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            eprint_line(format_args!("pvticket: {}", one_line(&error)));
            return ExitCode::from(USAGE_STATUS);
        }
        Err(_) => return print_help(),
    };
    inherited::record();
    streams::input_is_terminal();
    let result = prepare().and_then(|()| dispatch(cli.command));
    // Reported with every status: the missing input may be its cause.
    let is_unread = streams::input_failure()
        .map(|error| eprint_line(format_args!("pvticket: cannot read stdin: {error}")))
        .is_some();
    match result {
        _ if signals::is_out_of_time() => {
            eprint_line(format_args!("{}", fatal::OUT_OF_TIME));
            ExitCode::from(FAILURE)
        }
        Ok(0) if let Some(error) = streams::failure() => report_stdout_error(error),
        Ok(0) if is_unread => ExitCode::from(FAILURE),
        Ok(status) => ExitCode::from(status),
        Err(error) => failure(&error),
    }
}

/// Reports an error, and returns its exit status.
fn failure(error: &anyhow::Error) -> ExitCode {
    eprint_line(format_args!("pvticket: {}", limits::with_advice(format!("{error:#}"))));
    ExitCode::from(if error.is::<Usage>() { USAGE_STATUS } else { FAILURE })
}

/// Prepares the process, before it starts any thread.
fn prepare() -> anyhow::Result<()> {
    priority::drop_class()?;
    signal::block_stops_by_terminal().context("cannot block signals")?;
    variables::check()?;
    Ok(())
}

/// Runs a command and returns the exit status.
fn dispatch(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Boot(args) => boot_command::run(args),
        Command::Compare(args) => compare::run(&args),
        Command::Check(args) => check_command::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Report(args) => report_command::run(&args),
        Command::Cells(args) => cells::run(args),
        Command::Locks(args) => Ok(locks_command::run(&args)),
        Command::Lock(args) => lock::run(&args),
        Command::Sim(args) => sim_command::run(&args),
        Command::Search(args) => search::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Doctor(args) => doctor_command::run(&args),
        Command::Setup(args) => setup::run(&args),
        Command::Emulate(args) => emulate::run(args),
        Command::Drill(args) => drill::run(&args),
        Command::Keep(args) => keep::run(&args),
        Command::Exec(args) => emulate::exec(args),
        Command::Trace(args) => trace::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Inside(args) => inside::run(&args),
        Command::Tiny(args) => tiny::run(&args),
    }
}

/// Prints the requested help or version. Groups and examples are added only here, to save the time in
/// other runs.
fn print_help() -> ExitCode {
    match command().try_get_matches().map_err(|help| help.print()) {
        Err(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => report_stdout_error(&error),
        _ => ExitCode::SUCCESS,
    }
}

/// Reports output that could not be written, for a reason other than a closed pipe.
fn report_stdout_error(error: &io::Error) -> ExitCode {
    eprint_line(format_args!("pvticket: cannot write to stdout: {error}"));
    ExitCode::from(FAILURE)
}

/// clap's message without the prefix "error: ", the usage block and line breaks.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return missing_command(&text);
    }
    let message: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let message = message.join(" ");
    format!("{} (see pvticket --help)", message.trim_start_matches("error: "))
}

/// The message for a missing command; `help` is clap's text.
fn missing_command(help: &str) -> String {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: pvticket")).unwrap_or("");
    let words = usage.split_whitespace().take_while(|word| !word.starts_with(['<', '[']));
    let path: String = words.map(|word| format!("{word} ")).collect();
    let group = path.trim_end();
    let colon = if group.is_empty() { "" } else { ": " };
    format!("{group}{colon}requires a command (see pvticket {path}--help)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the title of the help was printed as an error.
    #[test]
    fn missing_command_is_reported() {
        for (words, message) in [
            (&["pvticket"][..], "requires a command (see pvticket --help)"),
            (&["pvticket", "bench"], "bench: requires a command (see pvticket bench --help)"),
        ] {
            assert_eq!(one_line(&Cli::try_parse_from(words).unwrap_err()), message);
        }
    }

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn emulated_commands_accept_host_kernel() {
        for words in
            ["boot", "compare", "check", "run spec", "bench boot", "bench hypercalls", "emulate"]
        {
            let parse = |kernel| {
                let end = ["--host-kernel", kernel, "--", "true"];
                let end = &end[..if ["boot", "emulate"].contains(&words) { 4 } else { 2 }];
                Cli::try_parse_from(
                    ["pvticket"].into_iter().chain(words.split(' ')).chain(end.iter().copied()),
                )
            };
            assert!(parse("7").is_ok() && parse("6.1").is_ok(), "{words}");
            assert!(parse("mine=/x").is_ok(), "{words}");
            let error = one_line(&parse("7=/x").unwrap_err());
            assert!(error.contains("'7=/x': 7 is taken"), "{error}");
        }
        for words in ["compare --resume DIR", "run --resume DIR"] {
            let words =
                ["pvticket"].into_iter().chain(words.split(' ')).chain(["--host-kernel", "7"]);
            assert!(one_line(&Cli::try_parse_from(words).unwrap_err()).contains("cannot be used"));
        }
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
