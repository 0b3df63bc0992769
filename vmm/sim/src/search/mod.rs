//! Searches for schedules that break a lock or starve one of its waiters.
//!
//! A [`Search`] simulates one random [`Scenario`] after another: a lock with its options, a load, a
//! schedule, and faults of kicks and halts. Each outcome is checked ([`TrialOutcome::trouble`]) for mutual
//! exclusion, the order of service, lost wakeups, lack of progress, and the bound on bypasses that the lock
//! promises. The first scenarios are random. Later, half of them are variants of scenarios in which a
//! waiter was passed most often or waited longest, or that behaved in a new way. [`Search::shrink`]
//! minimizes a finding, and a [`Finding`] replays it exactly.
//!
//! Like the simulator, a search uses no clock and no file. The caller of [`Search::step`] decides when it
//! ends, which may be in the middle of a simulation ([`Brake`]).

mod bound;
mod cases;
#[cfg(test)]
mod cases_tests;
mod coverage;
mod pool;
mod saved;
mod scenario;
mod shrink;
mod space;
#[cfg(test)]
mod test_mutants;
#[cfg(test)]
mod tests;
mod trial;

use std::rc::Rc;

use base::rng::SplitMix64;
use serde::{Deserialize, Serialize};
use simulated_locks::{Handoff, System};

use crate::Brake;
use crate::guest::{SimulatedSystem, guest_systems};
use crate::machine::Machine;
use crate::spec::SimSpecError;

pub use cases::{Case, SEED, cases};
pub use coverage::Coverage;
pub use pool::Pool;
pub use saved::{Finding, FindingReplay, ReplayError};
pub use scenario::{Scenario, ScenarioError};
pub use shrink::Shrunk;
pub use space::{Space, default_policies, shortest_slice};
pub use trial::{TrialOutcome, Trouble, TroubleKind};

use shrink::shrink;

/// Creates locks: arguments are a system, the numbers of vCPUs and locks, and options. Tests pass broken locks.
pub(crate) type LockFn = fn(System, usize, usize, &Handoff) -> Rc<dyn SimulatedSystem>;

/// The results of a search for one system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The system.
    #[serde(with = "base::text")]
    pub system: System,
    /// Simulations.
    pub trials: u64,
    /// Simulations with a finding.
    pub failed: u64,
    /// Operations in all simulations.
    pub operations: u64,
    /// Events in simulations of random scenarios, and of variants.
    #[serde(default)]
    events: [u64; 2],
    /// The kinds of trouble found.
    pub found: Vec<TroubleKind>,
    /// Scenarios to vary.
    pub pool: Pool,
}

/// The state of a search between two simulations, sufficient to resume it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// State of the random number generator.
    rng: u64,
    /// One per system.
    pub tallies: Vec<Tally>,
}

impl State {
    /// The initial state of a search.
    pub fn new(systems: Vec<System>, seed: u64) -> Self {
        let tally = |system| Tally {
            system,
            trials: 0,
            failed: 0,
            operations: 0,
            events: [0; 2],
            found: Vec::new(),
            pool: Pool::default(),
        };
        Self { rng: seed, tallies: systems.into_iter().map(tally).collect() }
    }

    /// Simulations of all systems.
    pub fn trials(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.trials).sum()
    }

    /// Operations in all simulations.
    pub fn operations(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.operations).sum()
    }

    /// Number of kinds of trouble found, summed over systems.
    pub fn num_found(&self) -> usize {
        self.tallies.iter().map(|tally| tally.found.len()).sum()
    }

    /// Checks that the scenarios to vary can be simulated on `machine`. For a state read from a file.
    pub fn check(&self, machine: &Machine) -> Result<(), ScenarioError> {
        let all = self.tallies.iter().flat_map(|tally| tally.pool.scenarios());
        all.into_iter().try_for_each(|scenario| scenario.check(machine))
    }
}

/// The result of one simulation of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The simulated scenario.
    pub scenario: Scenario,
    /// Its outcome.
    pub outcome: TrialOutcome,
    /// Whether the trouble is the first of its kind for its system.
    pub is_new: bool,
}

/// A search.
pub struct Search<'a> {
    space: &'a Space,
    machine: &'a Machine,
    make: LockFn,
    state: State,
}

/// Number of random simulations of a system before variants are used.
const RANDOM_FIRST: u64 = 24;
/// Number of failed simulations after which a system is no longer searched. Each failed simulation retains
/// the stacks of its vCPUs (see [`crate::Sim`]).
const MAX_FAILED: u64 = 24;

impl<'a> Search<'a> {
    /// Resumes a search from `state` on `machine`.
    pub fn new(space: &'a Space, machine: &'a Machine, state: State) -> Self {
        sim_cell::cover::record();
        Self::with(space, machine, state, guest_systems)
    }

    pub(crate) fn with(space: &'a Space, machine: &'a Machine, state: State, make: LockFn) -> Self {
        Self { space, machine, make, state }
    }

    /// The current state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The system with the fewest operations; `None` if all systems have failed too often.
    fn next(&self) -> Option<usize> {
        let tally = |ix: &usize| &self.state.tallies[*ix];
        let sound = (0..self.state.tallies.len()).filter(|ix| tally(ix).failed < MAX_FAILED);
        sound.min_by_key(|ix| tally(ix).operations)
    }

    /// Draws a scenario and simulates it. Returns `None` if every system has failed too often, or if
    /// `brake` was pulled. After a pulled brake, the next step draws the same scenario.
    pub fn step(&mut self, brake: &Brake) -> Result<Option<Step>, SimSpecError> {
        let Some(ix) = self.next() else { return Ok(None) };
        let mut rng = SplitMix64::new(self.state.rng);
        let tally = &self.state.tallies[ix];
        // By events: a variant that runs for long would otherwise have most of the time.
        let is_random = tally.trials < RANDOM_FIRST || tally.events[0] < tally.events[1];
        let variant = if is_random { None } else { tally.pool.next(self.space, &mut rng) };
        let scenario = variant.unwrap_or_else(|| self.space.draw(tally.system, &mut rng));
        let outcome = scenario.run(self.machine, self.make, brake, scenario.max_events())?;
        let Some(outcome) = outcome else { return Ok(None) };
        self.state.rng = rng.next_u64();
        let tally = &mut self.state.tallies[ix];
        tally.trials += 1;
        tally.operations += outcome.figures.total();
        tally.events[usize::from(!is_random)] += outcome.figures.events;
        let mut is_new = false;
        match outcome.trouble {
            None => tally.pool.consider(&scenario, &outcome),
            Some(Trouble { kind, .. }) => {
                tally.failed += 1;
                is_new = !tally.found.contains(&kind);
                if is_new {
                    tally.found.push(kind);
                }
            }
        }
        Ok(Some(Step { scenario, outcome, is_new }))
    }

    /// Minimizes the finding of a step, as far as possible before `brake` is pulled.
    pub fn shrink(&self, step: &Step, brake: &Brake) -> Shrunk {
        let run = |scenario: &Scenario| {
            scenario.run(self.machine, self.make, brake, scenario.max_events()).ok().flatten()
        };
        shrink(&step.scenario, &step.outcome, brake, run)
    }
}
