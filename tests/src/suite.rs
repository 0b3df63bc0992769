//! Tests and their tiers; runs a group of tests and counts the results.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context;
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{log, retry::Repeats};

/// Maximum number of repeated tests in one run. Runs on quiet and busy machines repeated 0 to 6. More, even
/// with each test within its own bound, would hide an occasional defect.
const MAX_REPEATED: usize = 12;

/// Maximum number of tests repeated in one run because a guest died in the emulated host.
pub const MAX_KILLED: usize = 3;

/// The runs that include a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// `make test` and `make test-all`. Needs no quiet machine, so it runs in parallel with other tests.
    Short,
    /// Only `make test-all`, for this reason; runs in parallel with other tests.
    Long(&'static str),
    /// Only `make test-all`, for this reason. Other load would distort its measurement, so it runs alone.
    Quiet(&'static str),
}

impl Tier {
    /// Whether `make test` runs it.
    pub fn is_short(self) -> bool {
        self == Self::Short
    }
}

#[derive(Clone, Copy)]
pub struct Test {
    /// Path of the function; the command line uses [`Test::name`].
    pub name: &'static str,
    pub tier: Tier,
    /// Returns Ok, a [`Skip`], or the failure.
    pub run: fn() -> anyhow::Result<()>,
}

/// Lists functions of the calling module as tests of `make test`; `name: call(1)` is a call with arguments.
/// An entry in another [`Tier`] gives the reason: `name => Long("30 s: fifty kills")`.
#[macro_export]
macro_rules! tests {
    ($($list:tt)*) => {
        $crate::tests_after!(anyhow::Ok(()); $($list)*);
    };
}

/// [`tests!`] for a module whose tests need a local KVM.
#[macro_export]
macro_rules! kvm_tests {
    ($($list:tt)*) => {
        $crate::tests_after!($crate::facts::need_kvm(); $($list)*);
    };
}

/// [`tests!`] for a module whose tests need an emulated host with a 7.x kernel.
#[macro_export]
macro_rules! kernel_7_tests {
    ($($list:tt)*) => {
        $crate::tests_after!($crate::host::emulated::need_kernel_7(); $($list)*);
    };
}

/// `kvm::tests!`
pub mod kvm {
    pub(crate) use crate::kvm_tests as tests;
}

/// `kernel_7::tests!`
pub mod kernel_7 {
    pub(crate) use crate::kernel_7_tests as tests;
}

/// A list of tests, each preceded by a check that may skip it.
#[macro_export]
macro_rules! tests_after {
    ($need:expr; $($name:ident $(: $call:expr)? $(=> $tier:ident($reason:literal))?),* $(,)?) => {
        /// The tests of this module.
        pub const TESTS: &[$crate::suite::Test] = &[$(
            $crate::suite::Test {
                name: concat!(module_path!(), "::", stringify!($name)),
                tier: $crate::tier!($($tier($reason))?),
                run: || $need.and_then(|_| $crate::run!($name $($call)?)),
            },
        )*];
    };
}

/// Calls the function of a listed test.
#[macro_export]
macro_rules! run {
    ($name:ident) => {
        $name()
    };
    ($name:ident $call:expr) => {
        $call
    };
}

/// A tier in the syntax of `tests!`.
#[macro_export]
macro_rules! tier {
    () => {
        $crate::suite::Tier::Short
    };
    ($tier:ident($reason:literal)) => {
        $crate::suite::Tier::$tier($reason)
    };
}

impl Test {
    /// Returns the test's name without the crate's.
    pub fn name(&self) -> &'static str {
        self.name.split_once("::").map_or(self.name, |(_, name)| name)
    }
}

/// Reason why a test cannot run here. This error is not a failure.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Skip(pub String);

/// Ends a test that cannot run here.
pub fn skip<T>(reason: impl Into<String>) -> anyhow::Result<T> {
    Err(Skip(reason.into()).into())
}

/// Result of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Passed,
    /// Passed after repetitions.
    PassedAtLast(Repeats),
    /// Skipped, for this reason.
    Skipped(String),
    /// Failed, with this error.
    Failed(String),
}

impl From<anyhow::Result<()>> for Verdict {
    fn from(result: anyhow::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => match error.downcast_ref::<Skip>() {
                Some(Skip(reason)) => Self::Skipped(reason.clone()),
                None => Self::Failed(format!("{error:#}")),
            },
        }
    }
}

/// Counts over all groups, and notes on single tests.
#[derive(Debug, Default)]
pub struct Tally {
    passed: u64,
    failed: u64,
    filtered: u64,
    notes: Arc<Mutex<Notes>>,
}

/// Notes on single tests, by name.
#[derive(Debug, Default, Serialize)]
struct Notes {
    #[serde(skip)]
    skipped: BTreeSet<(String, String)>,
    repeated: BTreeSet<(String, Repeats)>,
    /// Duration of each test, including its repetitions.
    seconds: BTreeMap<String, f64>,
}

impl Notes {
    /// Notes the outcome of a test, and returns the result for the runner.
    fn add(&mut self, test: &Test, outcome: Outcome) -> Result<Completion, Failed> {
        let Outcome { verdict, log, took } = outcome;
        let name = test.name().to_owned();
        let took = (took.as_secs_f64() * 100.0).round() / 100.0;
        self.seconds.insert(name.clone(), took);
        match verdict {
            Verdict::Failed(reason) => return Err(failure(&reason, &log, &name).into()),
            Verdict::Skipped(reason) => {
                self.skipped.insert((name, reason.clone()));
                return Ok(Completion::ignored_with(reason));
            }
            Verdict::PassedAtLast(repeats) => _ = self.repeated.insert((name, repeats)),
            Verdict::Passed => {}
        }
        Ok(Completion::Completed)
    }
}

/// A test's verdict, the output of its children and its duration.
#[derive(Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    pub log: String,
    pub took: Duration,
}

impl Outcome {
    /// Outcome of a test that did not run to its end.
    pub fn failed(reason: String) -> Self {
        Self { verdict: Verdict::Failed(reason), log: String::new(), took: Duration::ZERO }
    }
}

impl Tally {
    /// Runs the tests of one group that the arguments select; `run` runs a single test.
    pub fn run(
        &mut self,
        arguments: &Arguments,
        tests: &[Test],
        run: impl Fn(&Test) -> Outcome + Send + Sync + 'static,
    ) {
        let tests = tests.iter().filter(|test| is_tier_selected(arguments, test));
        let tests: Vec<Test> = tests.copied().collect();
        if selected(arguments, &tests).is_empty() && !arguments.list {
            self.filtered += tests.len() as u64;
            return;
        }
        let run = Arc::new(run);
        let trials = tests
            .into_iter()
            .map(|test| {
                let (run, notes) = (run.clone(), self.notes.clone());
                Trial::ignorable_test(test.name(), move || {
                    let outcome = run(&test);
                    lock(&notes).add(&test, outcome)
                })
            })
            .collect();
        self.add(&libtest_mimic::run(&without_tiers(arguments), trials));
    }

    fn add(&mut self, conclusion: &Conclusion) {
        self.passed += conclusion.num_passed;
        self.failed += conclusion.num_failed;
        self.filtered += conclusion.num_filtered_out;
    }

    /// Prints the skipped and the repeated tests with their reasons, and the totals.
    pub fn print(&self, took: Duration) {
        let notes = lock(&self.notes);
        let Notes { skipped, repeated, .. } = &*notes;
        for (name, reason) in skipped {
            println!("skipped {name}: {reason}");
        }
        for (name, reason) in repeated {
            println!("repeated {name}: {reason}");
        }
        if let Some(reason) = too_many(repeated) {
            println!("{reason}");
        }
        let mut line = format!(
            "end-to-end tests: {} passed, {} failed, {} skipped",
            self.passed,
            self.failed,
            skipped.len()
        );
        if !repeated.is_empty() {
            line += &format!(", {} repeated", repeated.len());
        }
        if self.filtered > 0 {
            line += &format!(", {} filtered out", self.filtered);
        }
        println!("{line} in {} s", took.as_secs());
    }

    /// Whether any test failed or too many were repeated.
    pub fn has_failed(&self) -> bool {
        self.failed > 0 || too_many(&lock(&self.notes).repeated).is_some()
    }

    /// Writes the counts, the repeated tests with their reasons, and the seconds of each test, as JSON.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut summary = serde_json::to_value(&*lock(&self.notes))?;
        let counts =
            [("passed", self.passed), ("failed", self.failed), ("filtered", self.filtered)];
        counts.into_iter().for_each(|(name, count)| summary[name] = count.into());
        let text = serde_json::to_vec_pretty(&summary)?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Returns an error text if more tests were repeated than chance explains.
fn too_many(repeated: &BTreeSet<(String, Repeats)>) -> Option<String> {
    let killed = repeated.iter().filter(|(_, repeats)| repeats.has_killed()).count();
    if repeated.len() > MAX_REPEATED {
        return Some(format!("more than {MAX_REPEATED} tests were repeated: too many for chance"));
    }
    (killed > MAX_KILLED).then(|| {
        format!("a guest died in {killed} tests of the emulated host: the limit is {MAX_KILLED}")
    })
}

/// Ignores poisoning: the values stay valid when a test panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the text of a failure, with the command that repeats the test and the file with its log.
fn failure(reason: &str, log: &str, name: &str) -> String {
    let log_line = match log::save(name, &format!("{log}{reason}\n")) {
        Ok(file) => format!("log:   {}", file.display()),
        Err(error) => format!("no log: {error:#}"),
    };
    format!("{reason}\nagain: make e2e FILTER={name}\n{log_line}")
}

/// Whether the arguments select the test's tier: `--include-ignored` selects all tiers, `--ignored` those
/// that only `make test-all` runs.
fn is_tier_selected(arguments: &Arguments, test: &Test) -> bool {
    if test.tier.is_short() {
        !arguments.ignored
    } else {
        arguments.ignored || arguments.include_ignored
    }
}

/// The arguments for trials already selected by tier.
fn without_tiers(arguments: &Arguments) -> Arguments {
    Arguments { ignored: false, include_ignored: false, ..arguments.clone() }
}

/// Returns the tests that the arguments select, in order.
pub fn selected(arguments: &Arguments, tests: &[Test]) -> Vec<Test> {
    let names = without_tiers(arguments);
    let is_selected = |test: &&Test| {
        is_tier_selected(arguments, test)
            && !names.is_filtered_out(&Trial::test(test.name(), || Ok(())))
    };
    tests.iter().filter(is_selected).copied().collect()
}

#[cfg(test)]
#[path = "suite_tests.rs"]
mod tests;
