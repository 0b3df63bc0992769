//! What a test is, and how a group of tests is run and counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::{Context, Error};
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use serde::{Deserialize, Serialize};

use crate::retry::Repeats;

/// The most tests that may be repeated in one run. On quiet and on busy machines there were 0 to 6;
/// more of them, each within its own bound, would hide an occasional defect.
const MOST_REPEATED: usize = 12;

/// The most tests that may be repeated in one run because a guest died in the emulated host.
pub const MOST_KILLED: usize = 3;

/// One test.
#[derive(Clone, Copy)]
pub struct Test {
    /// Module and function, as on the command line.
    pub name: &'static str,
    /// Returns Ok, a [`Skip`], or the failure.
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
    /// Its name without the crate's.
    pub fn name(&self) -> &'static str {
        self.name.split_once("::").map_or(self.name, |(_, name)| name)
    }
}

/// Why a test cannot run here. This error is not a failure.
#[derive(Debug)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Ends a test that cannot run here.
pub fn skip<T>(why: impl Into<String>) -> anyhow::Result<T> {
    Err(Skip(why.into()).into())
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Passed,
    /// Passed after repetitions.
    PassedAtLast(Repeats),
    /// Not run, for this reason.
    Skipped(String),
    /// Failed, with this error.
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

/// Counts over all groups, and the reasons for skipped tests.
#[derive(Debug, Default)]
pub struct Tally {
    passed: u64,
    failed: u64,
    filtered: u64,
    skipped: Skipped,
    repeated: Repeated,
    seconds: Seconds,
}

/// How long each test took, its repetitions included.
type Seconds = Arc<Mutex<BTreeMap<String, f64>>>;
type Skipped = Arc<Mutex<BTreeSet<(String, String)>>>;
/// The names of repeated tests, with the reasons.
type Repeated = Arc<Mutex<BTreeSet<(String, Repeats)>>>;

impl Tally {
    /// Runs one group; `verdict` runs a single test.
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
                let seconds = self.seconds.clone();
                Trial::ignorable_test(test.name(), move || {
                    let began = Instant::now();
                    let verdict = verdict(&test);
                    let took = (began.elapsed().as_secs_f64() * 100.0).round() / 100.0;
                    lock(&seconds).insert(test.name().to_owned(), took);
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

    /// Prints the skipped tests with their reasons, and the totals.
    pub fn print(&self) {
        let skipped = lock(&self.skipped);
        for (name, why) in skipped.iter() {
            println!("skipped {name}: {why}");
        }
        let repeated = self.repeats();
        for (name, why) in repeated.iter() {
            println!("repeated {name}: {why}");
        }
        if let Some(why) = too_many(&repeated) {
            println!("{why}");
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

    /// Did any test fail, or were too many repeated?
    pub fn has_failed(&self) -> bool {
        self.failed > 0 || too_many(&self.repeats()).is_some()
    }

    fn repeats(&self) -> MutexGuard<'_, BTreeSet<(String, Repeats)>> {
        lock(&self.repeated)
    }

    /// Writes the counts, the repeated tests with their reasons, and the seconds that each test took, as JSON.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        #[derive(Serialize)]
        struct Summary<'a> {
            passed: u64,
            failed: u64,
            filtered: u64,
            repeated: &'a BTreeSet<(String, Repeats)>,
            seconds: &'a BTreeMap<String, f64>,
        }
        let (repeated, seconds) = (&*self.repeats(), &*lock(&self.seconds));
        let Self { passed, failed, filtered, .. } = *self;
        let summary = Summary { passed, failed, filtered, repeated, seconds };
        let text = serde_json::to_vec_pretty(&summary)?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Were more tests repeated than chance explains?
fn too_many(repeated: &BTreeSet<(String, Repeats)>) -> Option<String> {
    let killed = repeated.iter().filter(|(_, repeats)| repeats.has_killed()).count();
    if repeated.len() > MOST_REPEATED {
        return Some(format!("more than {MOST_REPEATED} tests were repeated: too many for chance"));
    }
    (killed > MOST_KILLED).then(|| {
        format!("{killed} guests died in the emulated host: more than {MOST_KILLED} fail the run")
    })
}

fn note<T: Ord>(what: &Mutex<BTreeSet<(String, T)>>, test: &Test, detail: T) {
    lock(what).insert((test.name().to_owned(), detail));
}

/// What a panicking test left is as good as what another left.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The tests that the arguments select, in order.
pub fn selected(arguments: &Arguments, tests: &[Test]) -> Vec<&'static str> {
    tests
        .iter()
        .map(Test::name)
        .filter(|name| !arguments.is_filtered_out(&Trial::test(*name, || Ok(()))))
        .collect()
}
