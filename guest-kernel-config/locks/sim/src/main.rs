//! `pvticket-stepper`: runs the cases and prints how often each lock passed over a waiter. The same
//! seed repeats a run.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use stepper::{cases, verdicts};

/// Run the lock sources on simulated vCPUs, step by step, and count how often a waiter is bypassed
#[derive(Debug, Parser)]
#[command(name = "pvticket-stepper")]
struct StepperArgs {
    /// Acquisitions of each case
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    acquisitions: u64,
    /// Seed of all random choices; the same seed gives the same steps
    #[arg(long, default_value_t = cases::SEED, value_name = "N")]
    seed: u64,
    /// Cases that run at once; each is one thread
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print the last N events of each case
    #[arg(long, default_value_t = 0, value_name = "N")]
    trace: usize,
    /// Lose one kick in N, to see what a lost wakeup looks like; 0: none
    #[arg(long, default_value_t = 0, value_name = "N")]
    lose_kicks: u32,
    /// Only cases whose names contain all of these
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

fn main() -> ExitCode {
    let args = StepperArgs::parse();
    let mut chosen = cases::all(args.acquisitions);
    chosen.retain(|case| args.words.iter().all(|word| case.to_string().contains(word)));
    chosen.iter_mut().for_each(|case| case.machine.lost_kicks = args.lose_kicks);
    let jobs = args.jobs.unwrap_or_else(verdicts::processors);
    let mut out = io::stdout().lock();
    let mut all_kept = !chosen.is_empty();
    // A reader that goes away ends the program, without a message.
    let printed = verdicts::each(&chosen, args.seed, jobs, |verdict| {
        all_kept &= verdict.is_kept();
        writeln!(out, "{verdict}")?;
        if args.trace > 0 {
            write!(out, "{}", verdict.case.trace(args.seed, args.trace))?;
        }
        out.flush()
    });
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("cannot write: {error}"));
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
        Ok(()) if chosen.is_empty() => {
            say("no case has all of these words in its name; without words all are run");
            ExitCode::from(2)
        }
        Ok(()) if all_kept => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
    }
}

/// Unlike `eprintln`, does not panic if standard error is closed.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "pvticket-stepper: {what}");
}
