//! No lock lets a waiter be passed over more often than it says.

use std::convert::Infallible;

use stepper::{Verdict, cases, verdicts};

/// Acquisitions of each case; `make soak` has a hundred times as many.
const ACQUISITIONS: u64 = 100_000;

#[test]
fn every_lock_and_every_handoff_keeps_its_bound() {
    let cases = cases::all(ACQUISITIONS);
    let mut broken = Vec::new();
    let told = verdicts::each(&cases, cases::SEED, verdicts::processors(), |verdict: Verdict| {
        println!("{verdict}");
        if !verdict.is_kept() || !is_fair_enough(&verdict) {
            broken.push(verdict.to_string());
        }
        Ok::<(), Infallible>(())
    });
    assert_eq!(told, Ok(()));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Where CPUs are never taken away, each gets a twentieth at least of what the luckiest does.
fn is_fair_enough(verdict: &Verdict) -> bool {
    let Ok(outcome) = &verdict.outcome else { return false };
    let (least, most) = (outcome.each.iter().min(), outcome.each.iter().max());
    !verdict.case.machine.in_turn || least.is_some_and(|least| Some(&(20 * least)) >= most)
}
