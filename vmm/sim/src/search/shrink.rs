//! Makes a finding small.

use base::faults::FaultSpec;
use base::handoff::HandoffSpec;
use sched::PolicySpec;

use super::{Scenario, TrialOutcome};
use crate::Brake;

/// A scenario that shows the same kind of trouble and is as small as was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Shrunk {
    /// The scenario.
    pub scenario: Scenario,
    /// What comes of it.
    pub outcome: TrialOutcome,
    /// Simulations that it took.
    pub trials: u32,
}

/// The most simulations for one finding.
const MOST_TRIALS: u32 = 400;
/// The most operations in them.
const MOST_OPERATIONS: u64 = 4_000_000;
/// The most events in them: each of those that make no progress takes a second.
const MOST_EVENTS: u64 = 300_000_000;
/// Seeds that a simpler scenario is tried with, its own included.
const SEEDS: u64 = 4;
/// Operations from which one seed has to do.
const LONG: u64 = 20_000;

/// Looks for a simpler scenario with trouble of the same kind as in `outcome`, which came of `first`: fewer vCPUs and CPUs, fewer operations, no
/// faults, `rr`, no options, fixed times. `run` simulates; `None` if that cannot be. It ends early when
/// `brake` is pulled.
///
/// Every step is simpler in one property, so it ends; the result has the kind of trouble that the
/// first scenario had.
pub(super) fn shrink(
    first: &Scenario,
    outcome: &TrialOutcome,
    brake: &Brake,
    mut run: impl FnMut(&Scenario) -> Option<TrialOutcome>,
) -> Shrunk {
    let kind = |outcome: &TrialOutcome| outcome.trouble.map(|trouble| trouble.kind);
    let wanted = kind(outcome);
    let mut best = Shrunk { scenario: first.clone(), outcome: outcome.clone(), trials: 0 };
    let (mut operations, mut events) = (0, 0);
    // Operations that were done before it showed; at first as many as it was to make.
    let mut done = first.operations;
    'simpler: loop {
        for candidate in simpler(&best.scenario, done) {
            // What starves for long does so with any seed.
            let seeds = if candidate.operations > LONG { 1 } else { SEEDS };
            for more in 0..seeds {
                let is_enough = best.trials >= MOST_TRIALS
                    || operations >= MOST_OPERATIONS
                    || events >= MOST_EVENTS;
                if is_enough || brake.end(0).is_some() {
                    return best;
                }
                best.trials += 1;
                let seed = if more == 0 { candidate.seed } else { more };
                let candidate = Scenario { seed, ..candidate.clone() };
                let outcome = run(&candidate);
                if let Some(TrialOutcome { figures, .. }) = &outcome {
                    operations += figures.all();
                    events += figures.events;
                }
                if let Some(outcome) = outcome.filter(|outcome| kind(outcome) == wanted) {
                    done = outcome.figures.all();
                    (best.scenario, best.outcome) = (candidate, outcome);
                    continue 'simpler;
                }
            }
        }
        return best;
    }
}

/// Each is simpler than `scenario` in one property; those that save most come first.
fn simpler(scenario: &Scenario, done: u64) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut propose = |change: &dyn Fn(&mut Scenario)| {
        let mut changed = scenario.clone();
        change(&mut changed);
        if changed != *scenario {
            all.push(changed);
        }
    };
    let Scenario { cpus, vcpus, operations, .. } = *scenario;
    for fewer in [2, vcpus / 2, vcpus - 1] {
        propose(&|changed| changed.vcpus = fewer.clamp(2.min(vcpus), vcpus));
    }
    for fewer in [1, cpus / 2, cpus - 1] {
        propose(&|changed| changed.cpus = fewer.clamp(1, cpus));
    }
    propose(&|changed| changed.locks = 1);
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
    propose(&|changed| changed.policy = PolicySpec::round_robin());
    // Those that were done before it showed are enough, and fewer may be.
    for fewer in [done / 2, done, operations / 2] {
        propose(&|changed| changed.operations = fewer.clamp(1, operations));
    }
    propose(&|changed| changed.is_fixed = true);
    all
}
