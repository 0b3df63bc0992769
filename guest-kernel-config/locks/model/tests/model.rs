//! Checks that the product and harmless mutants pass every check, and other mutants fail one; prints
//! a table.
//!
//! `cargo test --manifest-path .../model/Cargo.toml -- WORDS` runs the variants whose names contain
//! WORDS; `-- --each WORDS` prints the result of every single check.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use model::{Check, Engine, Expectation, VARIANTS, Variant};

/// Variants checked in parallel.
const WORKERS: usize = 2;

/// A check and its failure, if it failed.
struct Finding {
    engine: Engine,
    check: Check,
    failure: Option<String>,
    duration: Duration,
}

fn main() -> ExitCode {
    let mut filter: Vec<_> = std::env::args().skip(1).collect();
    let detail = filter.iter().any(|word| word == "--each");
    filter.retain(|word| !word.starts_with("--"));
    let filter = filter.join(" ");
    // Mutants panic by design.
    panic::set_hook(Box::new(|_| ()));
    let began = Instant::now();
    let chosen: Vec<_> = VARIANTS.iter().filter(|variant| variant.name.contains(&filter)).collect();
    println!("{:48}  {:42}  caught by", "mutant", "breaks");
    let sound = parallel_map(&chosen, |variant| report(variant, &check(variant, detail), detail));
    let failures = sound.iter().filter(|is_sound| !**is_sound).count();
    let seconds = began.elapsed().as_secs_f32();
    println!("{} variants in {seconds:.0} s, {failures} not as they should be", chosen.len());
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all checks of the product; for a mutant, only up to the first check that catches it, unless
/// `detail`.
fn check(variant: &Variant, detail: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for execution in variant.executions {
        for check in execution.checks() {
            let finding = run(execution.engine, check);
            let is_caught = finding.failure.is_some();
            findings.push(finding);
            if is_caught && variant.expectation != Expectation::Sound && !detail {
                return findings;
            }
        }
    }
    findings
}

fn run(engine: Engine, check: Check) -> Finding {
    let began = Instant::now();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| check.explore(engine)));
    let failure = outcome.err().map(|panic| describe_panic(&*panic));
    Finding { engine, check, failure, duration: began.elapsed() }
}

/// Prints the row of `variant`. Returns whether its result is as expected.
fn report(variant: &Variant, findings: &[Finding], detail: bool) -> bool {
    let Variant { name, rule, expectation, .. } = variant;
    let failure = || findings.iter().filter(|finding| finding.failure.is_some());
    let mut lines = String::new();
    if detail {
        findings.iter().for_each(|finding| lines += &format!("    {}\n", describe(finding)));
    }
    let caught = failure().next();
    let by = match (caught, expectation) {
        (_, Expectation::Sound) => {
            failure()
                .for_each(|finding| lines += &format!("FAILED: {name}, {}\n", describe(finding)));
            let duration: Duration = findings.iter().map(|finding| finding.duration).sum();
            format!("{} checks in {:.1} s of a CPU", findings.len(), duration.as_secs_f32())
        }
        (Some(finding), Expectation::Caught) => describe(finding),
        (Some(finding), Expectation::Harmless(_)) => {
            format!("FAILED: not harmless, {}", describe(finding))
        }
        (None, Expectation::Harmless(why)) => format!("harmless: {why}"),
        (None, Expectation::Caught) => "FAILED: by nothing".to_owned(),
    };
    println!("{lines}{name:48}  {rule:42}  {by}");
    caught.is_some() == (*expectation == Expectation::Caught)
}

fn describe(finding: &Finding) -> String {
    let Finding { engine, check: Check { subject, name, .. }, failure, duration } = finding;
    let failure = failure.as_deref().unwrap_or("nothing");
    format!("{engine:?}, {subject}, {name}: {failure} ({:.2} s)", duration.as_secs_f32())
}

/// Describes a panic in a few words.
fn describe_panic(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    let causes = [
        ("already holds", "the model is wrong"),
        ("deadlock", "a lost wakeup"),
        ("exceeded m", "no end"),
        ("two cpus hold", "two holders"),
        ("not first in", "not in order"),
        ("is lost", "a lost increment"),
        ("freed memory", "freed memory touched"),
    ];
    let label = causes.iter().find(|(part, _)| text.to_lowercase().contains(part));
    label.map_or_else(|| text.lines().collect::<Vec<_>>().join(" "), |(_, name)| (*name).to_owned())
}

/// Applies `work` to each of `items` on [`WORKERS`] threads; returns the results in order.
fn parallel_map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let ix = next.fetch_add(1, Ordering::SeqCst);
                    let Some(item) = items.get(ix) else { break };
                    let result = work(item);
                    *results[ix].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    let done =
        |result: Mutex<Option<R>>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().filter_map(done).collect()
}
