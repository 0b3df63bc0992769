//! Locks that break a guarantee are caught, by the check of that guarantee.

use std::rc::Rc;

use locks::{Handoff, System};
use stepper::{BrokenGuarantee, Case, CaseFailure, CaseOutcome, SteppedLock, cases};

/// How a mutant is caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)]
enum Caught {
    /// A waiter is bypassed more often than its bound.
    Bypass,
    /// A wakeup is lost, or there is no more progress.
    Stuck,
    /// Two vCPUs hold it.
    NotExclusive,
}

struct Mutant {
    name: &'static str,
    /// The type of the lock that it breaks.
    lock: &'static str,
    /// Part of the names of the cases that are run.
    word: &'static str,
    caught: Caught,
    make: fn() -> Option<Rc<dyn SteppedLock>>,
}

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));

const ACQUISITIONS: u64 = 100_000;

/// The cases of the lock that a mutant breaks.
fn cases_of(lock: &str) -> Vec<Case> {
    let is_it = |system: System| match lock {
        "NativeTicketLock" => system == System::NativeTicket,
        "PvTicketLock" => system == System::PvTicket,
        "QueuedLock" => system == System::Queued,
        "PvQueuedLock" => system == System::PvQueued,
        "TestAndSetLock" => system == System::TestAndSet,
        other => panic!("no cases of {other}"),
    };
    let mut cases = cases::all(ACQUISITIONS);
    cases.retain(|case| is_it(case.system));
    cases
}

fn caught(case: &Case, outcome: &Result<CaseOutcome, Box<CaseFailure>>) -> Option<Caught> {
    match outcome {
        Ok(outcome) => {
            let is_kept = case.bounds().iter().all(|bound| bound.holds(outcome.bypassed));
            (!is_kept).then_some(Caught::Bypass)
        }
        Err(failure) => Some(match failure.trouble {
            BrokenGuarantee::Stuck(_) => Caught::Stuck,
            BrokenGuarantee::NotExclusive(_) => Caught::NotExclusive,
        }),
    }
}

#[test]
fn every_mutant_is_caught_by_what_it_breaks() {
    for mutant in MUTANTS {
        let mut cases = cases_of(mutant.lock);
        cases.retain(|case| case.to_string().contains(mutant.word));
        let found = cases.into_iter().find_map(|case| {
            let outcome = case.run_on(mutant.make, cases::SEED);
            caught(&case, &outcome).map(|how| (case, how))
        });
        let Some((case, how)) = found else { panic!("{}: not caught", mutant.name) };
        println!("{}: {how:?} by {case}", mutant.name);
        assert_eq!(how, mutant.caught, "{}, by {case}", mutant.name);
    }
}

#[test]
fn a_lost_wakeup_is_told_alike_each_time() {
    let mutant = MUTANTS.iter().find(|mutant| mutant.name == "no last look");
    let make = mutant.expect("it is in the list").make;
    let case = cases_of("PvTicketLock").into_iter().find(|case| case.handoff == Handoff::default());
    let case = case.expect("there are cases without handoffs");
    let failed = |seed| case.run_on(make, seed).expect_err("the wakeup is lost").to_string();
    let first = failed(3);
    assert_eq!(first, failed(3), "the same seed, the same bytes");
    assert_ne!(first, failed(4));
    assert!(first.contains("seed 3") && first.contains("halt for"), "{first}");
}
