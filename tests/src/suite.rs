//! What a test is, and how a group of them is run and counted.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Error;
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use serde::{Deserialize, Serialize};

use crate::retry::Repeats;

/// One test.
#[derive(Clone, Copy)]
pub struct Test {
    /// Module and function, as on the command line.
    pub name: &'static str,
    /// Ok, a [`Skip`], or what went wrong.
    pub run: fn() -> anyhow::Result<()>,
}

/// Lists functions of the calling module as tests.
#[macro_export]
macro_rules! tests {
    ($($function:ident),* $(,)?) => {
        /// The tests of this module.
        pub const TESTS: &[$crate::suite::Test] = &[$(
            $crate::suite::Test {
                name: concat!(module_path!(), "::", stringify!($function)),
                run: $function,
            },
        )*];
    };
}

impl Test {
    /// The name without that of the crate.
    pub fn name(&self) -> &'static str {
        self.name.split_once("::").map_or(self.name, |(_, name)| name)
    }
}

/// Why a test cannot be run here. Its error is no failure.
#[derive(Debug)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Ends a test that cannot be run here.
pub fn skip<T>(why: impl Into<String>) -> anyhow::Result<T> {
    Err(Skip(why.into()).into())
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Well.
    Passed,
    /// Well, after it had been repeated.
    PassedAtLast(Repeats),
    /// Not run, with the reason.
    Skipped(String),
    /// Badly, with what was found.
    Failed(String),
}

impl From<anyhow::Result<()>> for Verdict {
    fn from(result: anyhow::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => match error.downcast_ref::<Skip>() {
                Some(Skip(why)) => Self::Skipped(why.clone()),
                None => Self::Failed(all(&error)),
            },
        }
    }
}

/// An error with its causes.
pub fn all(error: &Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Counts over all groups, and the reasons of what was skipped.
#[derive(Debug, Default)]
pub struct Tally {
    passed: u64,
    failed: u64,
    filtered: u64,
    skipped: Skipped,
    repeated: Repeated,
}

type Skipped = Arc<Mutex<BTreeSet<(String, String)>>>;
/// The names of tests that were repeated, and why.
type Repeated = Arc<Mutex<BTreeSet<(String, Repeats)>>>;

impl Tally {
    /// Runs one group; `verdict` runs a test of it.
    pub fn run(
        &mut self,
        arguments: &Arguments,
        tests: &[Test],
        verdict: impl Fn(&Test) -> Verdict + Send + Sync + 'static,
    ) {
        if selected(arguments, tests).is_empty() && !arguments.list {
            self.filtered += tests.len() as u64;
            return;
        }
        let verdict = Arc::new(verdict);
        let trials = tests
            .iter()
            .map(|test| {
                let (test, verdict) = (*test, verdict.clone());
                let (skipped, repeated) = (self.skipped.clone(), self.repeated.clone());
                Trial::ignorable_test(test.name(), move || {
                    let verdict = verdict(&test);
                    if let Verdict::PassedAtLast(repeats) = &verdict {
                        note(&repeated, &test, repeats.clone());
                    }
                    completion(verdict, &test, &skipped)
                })
            })
            .collect();
        self.add(&libtest_mimic::run(arguments, trials));
    }

    fn add(&mut self, conclusion: &Conclusion) {
        self.passed += conclusion.num_passed;
        self.failed += conclusion.num_failed;
        self.filtered += conclusion.num_filtered_out;
    }

    /// Says what was skipped and why, and sums up.
    pub fn print(&self) {
        let skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, why) in skipped.iter() {
            println!("skipped {name}: {why}");
        }
        let repeated = self.repeated.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, why) in repeated.iter() {
            println!("repeated {name}: {why}");
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
        println!("{line}");
    }

    /// Did any test fail?
    pub fn has_failed(&self) -> bool {
        self.failed > 0
    }
}

fn note<T: Ord>(what: &Mutex<BTreeSet<(String, T)>>, test: &Test, detail: T) {
    let mut what = what.lock().unwrap_or_else(PoisonError::into_inner);
    what.insert((test.name().to_owned(), detail));
}

fn completion(verdict: Verdict, test: &Test, skipped: &Skipped) -> Result<Completion, Failed> {
    match verdict {
        Verdict::Passed | Verdict::PassedAtLast(_) => Ok(Completion::Completed),
        Verdict::Failed(what) => Err(what.into()),
        Verdict::Skipped(why) => {
            note(skipped, test, why.clone());
            Ok(Completion::ignored_with(why))
        }
    }
}

/// The names that the arguments leave, in order.
pub fn selected(arguments: &Arguments, tests: &[Test]) -> Vec<&'static str> {
    tests
        .iter()
        .map(Test::name)
        .filter(|name| !arguments.is_filtered_out(&Trial::test(*name, || Ok(()))))
        .collect()
}
