//! No lock lets a waiter be bypassed more often than its bound.

use std::convert::Infallible;

use stepper::{CaseVerdict, cases, verdicts};

/// Acquisitions per case; `make soak` runs a hundred times as many.
const ACQUISITIONS: u64 = 100_000;

#[test]
fn every_lock_and_every_handoff_keeps_its_bound() {
    let cases = cases::all(ACQUISITIONS);
    let mut broken = Vec::new();
    let told =
        verdicts::each(&cases, cases::SEED, verdicts::processors(), |verdict: CaseVerdict| {
            println!("{verdict}");
            if !verdict.is_kept() || !is_fair_enough(&verdict) {
                broken.push(verdict.to_string());
            }
            Ok::<(), Infallible>(())
        });
    assert_eq!(told, Ok(()));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// If CPUs are never taken away, each gets at least a twentieth of the acquisitions of the most
/// successful one.
fn is_fair_enough(verdict: &CaseVerdict) -> bool {
    let Ok(outcome) = &verdict.outcome else { return false };
    let (least, most) = (outcome.each.iter().min(), outcome.each.iter().max());
    !verdict.case.machine.in_turn || least.is_some_and(|least| Some(&(20 * least)) >= most)
}
