//! End-to-end tests of pvticket, which run its binary as a user does.
//!
//! Four groups, one after the other: quick tests in parallel, then tests that schedule vCPUs on
//! this host, then tests that start an emulated host each, then tests that boot Linux guests: on
//! this host if its KVM can, otherwise all of them in one emulated host. Tests that cannot run here
//! are skipped with the reason. Of the third group the tests that do not measure run two at a time:
//! an emulated host that starts keeps one CPU busy.
//!
//! The test target `e2e` is only this library's [`main`], so that the library's own unit tests have
//! the usual harness. `cargo test --release -p pvticket-tests --test e2e -- NAME` runs the tests whose
//! names contain NAME; `--exact`, `--skip` and `--list` are those of the standard harness. `--ignored` runs
//! the measurements, which are no tests of behaviour and print tables.

#![forbid(unsafe_code)]

mod browser;
mod emulator;
mod facts;
mod files;
mod fixture;
mod guest;
mod host;
mod process;
mod product;
mod ran;
mod relay;
mod retry;
#[cfg(test)]
mod specification;
mod suite;
mod terminal;

use std::{env, fs, os::unix::process::CommandExt, process::Command, process::ExitCode};

use libtest_mimic::Arguments;

use facts::Kvm;
use host::instructions;
use relay::Relay;
use suite::Tally;

/// SIGHUP, SIGINT, SIGQUIT and SIGTERM, in the format of `SigIgn` in /proc/PID/status.
const ENDING: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14;

/// How many tests of emulated hosts that do not measure run at a time.
const BESIDE: usize = 2;

/// Restarts this program with the default actions of signals if it inherited some as ignored (a
/// shell starts background commands so). The product keeps ignored what it inherits as ignored, and
/// the tests that signal it would hang.
fn expect_signals() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if ignored & ENDING != 0
        && let Ok(program) = env::current_exe()
    {
        let mut again = Command::new("env");
        again.arg("--default-signal=HUP,INT,QUIT,TERM").arg(program).args(env::args_os().skip(1));
        eprintln!("pvticket-tests: cannot reset ignored signals: env: {}", again.exec());
    }
}

/// The test program.
pub fn main() -> ExitCode {
    expect_signals();
    let mut words = env::args_os().skip(1);
    let result = match words.next() {
        // In the emulated host: runs the tests with these names.
        Some(first) if first == relay::ERRAND => {
            let names: Vec<_> = words.collect();
            relay::inside(&guest::tests(), &names).map(|()| ExitCode::SUCCESS)
        }
        Some(first) if first == instructions::ERRAND => {
            let arguments: Vec<_> = words.collect();
            instructions::errand(&arguments).map(|()| ExitCode::SUCCESS)
        }
        _ => product::find().and_then(|()| run(&Arguments::from_args())),
    };
    result.unwrap_or_else(|error| {
        eprintln!("pvticket-tests: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let serial = Arguments { test_threads: Some(1), ..arguments.clone() };
    let beside = arguments.test_threads.unwrap_or(BESIDE).min(BESIDE);
    let in_pairs = Arguments { test_threads: Some(beside), ..arguments.clone() };
    let mut tally = Tally::default();
    tally.run(arguments, &host::quick(), retry::run);
    tally.run(&serial, &host::schedules(), retry::run);
    tally.run(&in_pairs, &host::emulated_beside(), retry::run);
    tally.run(&serial, &host::emulated(), retry::run);
    if arguments.ignored || arguments.include_ignored {
        let asked = Arguments { ignored: false, include_ignored: false, ..serial.clone() };
        tally.run(&asked, &host::costs(), retry::run);
    }
    let guests = guest::tests();
    if Kvm::here() == Kvm::Hardware {
        tally.run(&serial, &guests, retry::run);
    } else {
        let relay = Relay::new(suite::selected(arguments, &guests));
        tally.run(&serial, &guests, move |test| relay.verdict(test));
    }
    if !arguments.list {
        tally.print();
        // To follow how often tests are repeated, and how long they take.
        tally.write(&product::profile_folder()?.join("pvticket-tests.json"))?;
    }
    Ok(if tally.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
