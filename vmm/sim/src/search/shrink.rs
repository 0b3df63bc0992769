//! Minimizes a finding.

use base::faults::FaultSpec;
use base::handoff::HandoffSpec;
use sched::PolicySpec;

use super::{Scenario, TrialOutcome};
use crate::Brake;

/// The smallest scenario found with the same kind of trouble.
#[derive(Debug, Clone, PartialEq)]
pub struct Shrunk {
    /// The scenario.
    pub scenario: Scenario,
    /// Its outcome.
    pub outcome: TrialOutcome,
    /// Number of simulations used.
    pub trials: u32,
}

/// Maximum number of simulations per finding.
const MAX_TRIALS: u32 = 400;
/// Maximum number of operations in these simulations.
const MAX_OPERATIONS: u64 = 4_000_000;
/// Maximum number of events in these simulations. A simulation without progress takes a second.
const MAX_EVENTS: u64 = 300_000_000;
/// Seeds tried for each simpler scenario, including its own.
const SEEDS: u64 = 4;
/// Above this number of operations, only one seed is tried.
const LONG_OPERATIONS: u64 = 20_000;

/// Searches for a simpler scenario with the same kind of trouble as `outcome`, the outcome of `first`: fewer
/// vCPUs and CPUs, fewer operations, no faults, `rr`, no options, fixed times. `run` simulates a scenario and
/// returns `None` if it cannot. Ends early when `brake` is pulled.
///
/// Each step simplifies one property, so the search terminates.
pub(super) fn shrink(
    first: &Scenario,
    outcome: &TrialOutcome,
    brake: &Brake,
    mut run: impl FnMut(&Scenario) -> Option<TrialOutcome>,
) -> Shrunk {
    let kind = |outcome: &TrialOutcome| outcome.trouble.map(|trouble| trouble.kind);
    let kind_found = kind(outcome);
    let mut best = Shrunk { scenario: first.clone(), outcome: outcome.clone(), trials: 0 };
    let (mut operations, mut events) = (0, 0);
    // Operations completed before the trouble showed; initially the scenario's total.
    let mut done = first.operations;
    'simpler: loop {
        for candidate in simpler(&best.scenario, done) {
            // A long starvation shows with any seed.
            let seeds = if candidate.operations > LONG_OPERATIONS { 1 } else { SEEDS };
            for seed_offset in 0..seeds {
                let is_exhausted = best.trials >= MAX_TRIALS
                    || operations >= MAX_OPERATIONS
                    || events >= MAX_EVENTS;
                if is_exhausted || brake.stop_reason(0).is_some() {
                    return best;
                }
                best.trials += 1;
                let seed = if seed_offset == 0 { candidate.seed } else { seed_offset };
                let candidate = Scenario { seed, ..candidate.clone() };
                let outcome = run(&candidate);
                if let Some(TrialOutcome { figures, .. }) = &outcome {
                    operations += figures.total();
                    events += figures.events;
                }
                if let Some(outcome) = outcome.filter(|outcome| kind(outcome) == kind_found) {
                    done = outcome.figures.total();
                    (best.scenario, best.outcome) = (candidate, outcome);
                    continue 'simpler;
                }
            }
        }
        return best;
    }
}

/// Scenarios that are each simpler in one property, those that save most first.
fn simpler(scenario: &Scenario, done: u64) -> Vec<Scenario> {
    let mut candidates = Vec::new();
    let mut propose = |change: &dyn Fn(&mut Scenario)| {
        let mut changed = scenario.clone();
        change(&mut changed);
        if changed != *scenario {
            candidates.push(changed);
        }
    };
    let Scenario { cpus, vcpus, operations, .. } = *scenario;
    for fewer in [2, vcpus / 2, vcpus - 1] {
        propose(&|changed| changed.vcpus = fewer.clamp(2.min(vcpus), vcpus));
    }
    for fewer in [1, cpus / 2, cpus - 1] {
        propose(&|changed| changed.cpus = fewer.clamp(1, cpus));
    }
    for fewer in [1, scenario.locks - 1] {
        propose(&|changed| changed.locks = fewer.max(1));
    }
    propose(&|changed| changed.tries = false);
    propose(&|changed| changed.absence = 0);
    propose(&|changed| changed.is_split = false);
    propose(&|changed| changed.faults = FaultSpec::default());
    propose(&|changed| changed.noise = None);
    propose(&|changed| changed.faults.delay = None);
    propose(&|changed| changed.faults.dup = None);
    propose(&|changed| changed.faults.spurious = None);
    propose(&|changed| changed.faults.halt_delay = None);
    propose(&|changed| changed.handoff = HandoffSpec::NONE);
    for bit in (0..u32::BITS).map(|bit| 1 << bit) {
        propose(&|changed| changed.handoff.bits &= !bit);
    }
    propose(&|changed| changed.handoff.far = 0);
    propose(&|changed| changed.handoff.queue = 0);
    propose(&|changed| changed.handoff.restrict = 0);
    propose(&|changed| changed.policy = PolicySpec::round_robin());
    // The operations completed before the trouble suffice, and fewer may suffice, too.
    for fewer in [done / 2, done, operations / 2] {
        propose(&|changed| changed.operations = fewer.clamp(1, operations));
    }
    propose(&|changed| changed.is_fixed = true);
    candidates
}
