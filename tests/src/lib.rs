//! End-to-end tests of pvticket, which run its binary as a user does.
//!
//! Tests run in parallel, one per CPU. Tests that boot Linux guests run serially in a separate lane: on this
//! host if its KVM can run guest kernels, otherwise in one emulated host. Tests that need a quiet machine
//! ([`suite::Tier::Quiet`]) run last, one at a time. Tests that cannot run here are skipped with the reason.
//!
//! The test target `e2e` only calls this library's [`main`], so that the library's own unit tests use the
//! usual harness. `cargo test --workspace --test e2e -- NAME` runs the tests whose names contain NAME;
//! `--exact`, `--skip` and `--list` work as in the standard harness. `--include-ignored` also runs the tests
//! that only `make test-all` runs, and all tests at its lengths ([`form`]).

#![forbid(unsafe_code)]

mod browser;
#[cfg(test)]
mod budget;
mod emulator;
mod facts;
mod files;
mod fixture;
mod form;
mod guest;
#[cfg(test)]
mod history;
mod host;
mod lane;
mod log;
mod prelude;
mod process;
mod product;
#[cfg(test)]
mod references;
mod relay;
#[cfg(test)]
mod repository;
mod retry;
mod rows;
mod run_result;
#[cfg(test)]
mod specification;
mod suite;
mod terminal;
mod unlisted_calls;
#[cfg(test)]
mod words;

use std::{
    env, fs, os::unix::process::CommandExt, process::Command, process::ExitCode, time::Instant,
};

use libtest_mimic::Arguments;

use facts::Kvm;
use lane::Lane;
use suite::{Outcome, Tally, Test, Tier};

/// SIGHUP, SIGINT, SIGQUIT and SIGTERM, in the format of `SigIgn` in /proc/PID/status.
const TERMINATING: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14;

/// Restarts this program with the default actions of signals if it inherited ignored ones, as background
/// commands of a shell do. The product keeps an inherited signal ignored, so tests that send it would hang.
fn expect_signals() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if ignored & TERMINATING != 0
        && let Ok(program) = env::current_exe()
    {
        let mut again = Command::new("env");
        again.arg("--default-signal=HUP,INT,QUIT,TERM").arg(program).args(env::args_os().skip(1));
        eprintln!("pvticket-tests: cannot reset ignored signals: env: {}", again.exec());
    }
}

/// Entry point of the test program.
pub fn main() -> ExitCode {
    expect_signals();
    let mut args = env::args_os().skip(1);
    let result = match args.next() {
        // In the emulated host: runs the named tests.
        Some(first) if first == relay::INSIDE => {
            let names: Vec<_> = args.collect();
            relay::run_inside(&guest::tests(), form::read(&names)).map(|()| ExitCode::SUCCESS)
        }
        _ => product::find().and_then(|()| run(&Arguments::from_args())),
    };
    result.unwrap_or_else(|error| {
        eprintln!("pvticket-tests: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    form::set(arguments.include_ignored || arguments.ignored);
    let mut tally = Tally::default();
    let (parallel, alone) = split_by_tier(&host::tests());
    let (guests_parallel, guests_alone) = split_by_tier(&guest::tests());
    let serial = Arguments { test_threads: Some(1), ..arguments.clone() };
    let lane = |tests: &[Test]| {
        let tests = if arguments.list { Vec::new() } else { suite::selected(arguments, tests) };
        Lane::start(move |pass| run_guests(&tests, pass))
    };
    let started = (arguments.test_threads != Some(1)).then(|| lane(&guests_parallel));
    tally.run(arguments, &parallel, retry::run);
    // Parallel guests come last: this waits for the lane's outcomes.
    let guests = started.unwrap_or_else(|| lane(&guests_parallel));
    tally.run(arguments, &guests_parallel, move |test| guests.outcome(test));
    tally.run(&serial, &alone, retry::run);
    let guests = lane(&guests_alone);
    tally.run(&serial, &guests_alone, move |test| guests.outcome(test));
    if !arguments.list {
        tally.print(began.elapsed());
        // For tracking repetitions and durations of tests over time.
        tally.write(&product::profile_folder()?.join("pvticket-tests.json"))?;
    }
    Ok(if tally.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Splits tests into the parallel tests and the tests that run alone.
fn split_by_tier(tests: &[Test]) -> (Vec<Test>, Vec<Test>) {
    tests.iter().partition(|test| !matches!(test.tier, Tier::Quiet(_)))
}

/// Runs tests that boot Linux guests, one after the other: here if KVM can run their kernels, otherwise in
/// one emulated host.
fn run_guests(tests: &[Test], pass: &dyn Fn(&Test, Outcome)) {
    if Kvm::here() == Kvm::Hardware {
        tests.iter().for_each(|test| pass(test, retry::run(test)));
    } else if !tests.is_empty() {
        relay::run(tests, pass);
    }
}
