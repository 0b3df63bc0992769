//! Runs cases on several threads and judges whether their locks kept their guarantees.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::{Case, CaseFailure, CaseOutcome};

/// The result of a case.
#[derive(Debug)]
pub struct CaseVerdict {
    /// The configuration that was run.
    pub case: Case,
    /// The seed of the run.
    pub seed: u64,
    /// The outcome.
    pub outcome: Result<CaseOutcome, Box<CaseFailure>>,
}

impl CaseVerdict {
    /// Runs `case`.
    pub fn of(case: Case, seed: u64) -> Self {
        Self { case, seed, outcome: case.run(seed) }
    }

    /// Has the lock kept its guarantees?
    pub fn is_kept(&self) -> bool {
        let Ok(outcome) = &self.outcome else { return false };
        self.case.bounds().iter().all(|bound| bound.holds(outcome.bypassed))
    }
}

/// One line; more if it failed.
impl fmt::Display for CaseVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, seed, outcome } = self;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(failure) => return write!(f, "FAILED {case} seed={seed}\n  {failure}"),
        };
        let passed = outcome.bypassed;
        write!(f, "{}", if self.is_kept() { "ok     " } else { "FAILED " })?;
        let bounds = case.bounds();
        if bounds.is_empty() {
            write!(f, "{} since call, unbounded by design", passed.from_call)?;
        }
        for (ix, bound) in bounds.iter().enumerate() {
            let comma = if ix > 0 { ", " } else { "" };
            write!(f, "{comma}{} of {} since {}", bound.of(passed), bound.most, bound.since)?;
        }
        let (least, most) = (outcome.each.iter().min(), outcome.each.iter().max());
        let counts = outcome.counts;
        write!(f, "  {case} seed={seed}")?;
        write!(f, "; each {}..{}", least.unwrap_or(&0), most.unwrap_or(&0))?;
        write!(f, "; halts {} kicks {}", counts.halts, counts.kicks)?;
        write!(f, " preemptions {} steps {}", counts.preemptions, counts.steps)
    }
}

/// Processors that this process may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Runs all `cases` from `seed`, `jobs` at a time, and passes each verdict to `then`, in order.
pub fn each<E>(
    cases: &[Case],
    seed: u64,
    jobs: usize,
    mut then: impl FnMut(CaseVerdict) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, cases.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((place, case)) = take(cases, next) {
                    if sender.send((place, CaseVerdict::of(*case, seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        in_order(receiver, &mut then).inspect_err(|_| next.store(cases.len(), Ordering::Relaxed))
    })
}

fn take<'a>(cases: &'a [Case], next: &AtomicUsize) -> Option<(usize, &'a Case)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    Some((place, cases.get(place)?))
}

/// Passes results that arrive in any order to `then`, in the order of their index.
fn in_order<E>(
    arrivals: mpsc::Receiver<(usize, CaseVerdict)>,
    then: &mut impl FnMut(CaseVerdict) -> Result<(), E>,
) -> Result<(), E> {
    let mut early = std::collections::BTreeMap::new();
    let mut due = 0;
    for (place, verdict) in arrivals {
        early.insert(place, verdict);
        while let Some(verdict) = early.remove(&due) {
            then(verdict)?;
            due += 1;
        }
    }
    Ok(())
}
