//! `bench`: the workloads of the publications that pvticket builds on, as a static program for the
//! Linux guest. Each workload has a file in `workload/` and a line in `workload.rs`.

mod crew;
mod longest;
mod mapping;
mod options;
mod ports;
mod postgres;
mod report;
mod stats;
mod steal;
mod tally;
mod window;
mod workload;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use options::{Action, WorkloadOptions};
use report::WorkloadReport;

/// Exit status for bad usage.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let action = match options::parse(std::env::args_os()) {
        Ok(action) => action,
        Err(error) => {
            eprintln!("bench: {error}; `bench --help` lists workloads and options");
            return ExitCode::from(USAGE);
        }
    };
    let result = match action {
        Action::Help => print(&options::help()),
        Action::Counters => stats::read_all().and_then(|counters| print(&format!("{counters}\n"))),
        Action::PassOn => workload::spawn::pass_on(),
        Action::Worker(workload, options, member) => crew::work(workload, &options, &member),
        Action::Run(workload, options) => run(workload, &options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            match error.kind() {
                // A program that cannot be started.
                io::ErrorKind::NotFound => ExitCode::from(USAGE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run(workload: &'static workload::Workload, options: &WorkloadOptions) -> io::Result<()> {
    let before = stats::read_windows();
    let parts = (workload.run)(workload, options)?;
    let counts = stats::read_windows().zip(before);
    let counts = counts.map(|(after, before)| stats::between(&before, &after));
    let report = WorkloadReport {
        bench: workload.name,
        cpus: options.cpus,
        steal_seconds: report::steal_seconds(&parts).or_else(|| stats::steal_seconds(&counts)),
        seconds: parts.iter().map(|part| part.seconds).sum(),
        operations: report::sums(&parts),
        violations: parts.iter().map(|part| part.violations).sum(),
        spinlocks: stats::chosen_spinlocks(),
        stats: counts,
        output: parts.iter().find_map(|part| part.output.clone()),
        parts,
    };
    print(&if options.json { report.json()? } else { report.text() })
}

fn print(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}
