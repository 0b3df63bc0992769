//! Every lock keeps its bound on bypasses, and a lock that exceeds it is detected.

use std::sync::Mutex;

use super::bound::Bounds;
use super::test_mutants::{MUTANTS, Mutant};
use super::tests::{in_parallel, machine};
use super::*;
use crate::LineLaw;

/// Acquisitions per case in `make test`.
const FEW: u64 = 10_000;
/// Acquisitions per case in `make test-all`. `make soak` has a hundred times as many.
const ACQUISITIONS: u64 = 100_000;

fn run_all(scenario: &Scenario) -> TrialOutcome {
    let outcome = scenario.run_all(&machine(), &Brake::default());
    outcome.expect("it can be simulated").expect("nothing ends it")
}

/// Whether all vCPUs get at least a twentieth of the maximum per vCPU; true except for long cases in turn.
fn is_fair_enough(case: &Case<'_>) -> bool {
    if case.scenario.operations < ACQUISITIONS {
        return true;
    }
    let operations = &case.outcome.figures.operations;
    let (min, max) = (operations.iter().min(), operations.iter().max());
    case.scenario.law != LineLaw::InTurn || min.is_some_and(|min| Some(&(20 * min)) >= max)
}

#[test]
fn every_lock_and_every_handoff_keeps_its_bound() {
    each_keeps_its_bound(FEW);
}

#[test]
#[ignore = "a minute of CPU time: ten times the acquisitions"]
fn every_lock_keeps_its_bound_ten_times_longer() {
    each_keeps_its_bound(ACQUISITIONS);
}

fn each_keeps_its_bound(acquisitions: u64) {
    let cases = cases(acquisitions);
    let broken = Mutex::new(Vec::new());
    in_parallel(&cases, |scenario| {
        let outcome = &run_all(scenario);
        let case = Case { scenario, outcome };
        println!("{case}");
        if outcome.trouble.is_some() || !is_fair_enough(&case) {
            broken.lock().expect("no panic").push(case.to_string());
        }
    });
    let broken = broken.into_inner().expect("no panic");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The first case that detects a mutant, out of the cases of the lock that it breaks, short ones first. Long
/// cases are those whose bound cannot be exceeded with few acquisitions.
fn detect(mutant: &Mutant) -> Option<(Scenario, TrialOutcome)> {
    let is_long = |case: &Scenario| {
        let throttled = Bounds::new(case).throttled;
        throttled.is_some_and(|max| max >= FEW)
    };
    let long = cases(ACQUISITIONS).into_iter().filter(is_long);
    let candidates = [FEW / 5, FEW].into_iter().flat_map(cases).chain(long);
    candidates.filter(|case| case.system == mutant.system).find_map(|case| {
        let outcome = case.run(&machine(), mutant.make, &Brake::default(), u64::MAX);
        let outcome = outcome.expect("it can be simulated").expect("nothing ends it");
        outcome.trouble.is_some().then_some((case, outcome))
    })
}

#[test]
fn every_mutant_is_caught_by_a_case() {
    let mutants: Vec<_> = MUTANTS.iter().collect();
    in_parallel(&mutants, |mutant| {
        let name = mutant.name;
        let Some((scenario, outcome)) = detect(mutant) else { panic!("{name}: not caught") };
        println!("{name}: {}", Case { scenario: &scenario, outcome: &outcome });
        let kind = outcome.trouble.map(|trouble| trouble.kind);
        assert!(kind.is_some_and(|kind| mutant.shows_as(kind)), "{name}: {kind:?} by {scenario}");
    });
}

#[test]
fn runs_depend_only_on_the_seed() {
    for case in cases(1_000) {
        let digest = |seed| run_all(&Scenario { seed, ..case.clone() }).digest();
        let first = digest(1);
        assert_eq!(first, digest(1), "{case}");
        // With fixed times and alternating steps, only the lock of an operation is drawn.
        if case.law != LineLaw::InTurn {
            assert_ne!(first, digest(2), "{case}");
        }
    }
}

#[test]
fn a_lost_kick_halts_all_vcpus_with_a_trace() {
    let halting = cases(10_000).into_iter().find(|case| {
        case.system == System::PvTicket && case.cpus < case.vcpus && case.noise.is_none()
    });
    let halting = halting.expect("there are such cases");
    let faults = "kick-drop:0.02".parse().expect("it is a fault");
    let lossy = Scenario { faults, ..halting };
    let kind = run_all(&lossy).trouble.map(|trouble| trouble.kind);
    assert_eq!(kind, Some(TroubleKind::AllHalt));
    let trace = || lossy.run_recorded(&machine(), 120).expect("it can be simulated").2;
    let first = trace();
    assert_eq!(first.lines().count(), 120);
    assert!(first.contains("== halts") && first.contains("lock 0+"), "{first}");
    // Addresses differ, but the trace does not show them.
    let _elsewhere = vec![0_u8; 1 << 20];
    assert_eq!(trace(), first);
}

#[test]
fn only_any_order_is_random() {
    let base = cases(2_000).remove(0);
    let digest = |law, seed| {
        let policy = sched::PolicySpec::round_robin();
        let scenario = Scenario { law, seed, policy, is_fixed: true, ..base.clone() };
        let outcome = run_all(&scenario);
        assert_eq!(outcome.figures.transfers, 0, "there are no lines");
        outcome.digest()
    };
    assert_ne!(digest(LineLaw::AnyOrder, 1), digest(LineLaw::AnyOrder, 2));
    assert_eq!(digest(LineLaw::InTurn, 1), digest(LineLaw::InTurn, 2), "nothing is drawn");
}
