//! Looks for schedules that break a lock or starve one of its waiters.
//!
//! A [`Search`] makes one simulation after the other, of [`Scenario`]s that it draws: a lock with its
//! options, a load, a schedule and faults of kicks and halts. Each is checked ([`TrialOutcome::trouble`])
//! for mutual exclusion, for the order of service, for lost wakeups and standstills, and for the
//! bound on bypasses that the lock promises. At first all are random; later half of them are
//! variants of those in which a waiter was passed most often, waited longest, or that did what none
//! had done before. [`Search::shrink`] makes what was found small, and a [`Finding`] repeats it to the bit.
//!
//! Pure as the simulator is: no clock and no file. Who calls [`Search::step`] decides when it ends, also in
//! the middle of a simulation ([`Brake`]).

mod bound;
mod cases;
#[cfg(test)]
mod cases_tests;
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
use crate::guest::{SimulatedSystem, subjects};
use crate::machine::Machine;
use crate::spec::SimSpecError;

pub use cases::{Case, SEED, cases};
pub use pool::Pool;
pub use saved::{Finding, FindingReplay, ReplayError};
pub use scenario::{Scenario, ScenarioError};
pub use shrink::Shrunk;
pub use space::{Space, shortest_slice, usual_policies};
pub use trial::{TrialOutcome, Trouble, TroubleKind};

use shrink::shrink;
use trial::MOST_EVENTS;

/// Makes the locks of a scenario: for so many vCPUs, so many locks. Tests give locks that are broken.
pub(crate) type Make = fn(System, usize, usize, &Handoff) -> Rc<dyn SimulatedSystem>;

/// What was done with one system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The system.
    #[serde(with = "base::text")]
    pub system: System,
    /// Simulations.
    pub trials: u64,
    /// Those that found something.
    pub failed: u64,
    /// Operations in all simulations.
    pub operations: u64,
    /// The kinds of trouble found.
    pub found: Vec<TroubleKind>,
    /// What to vary.
    pub pool: Pool,
}

/// A search between two simulations: all that it needs to go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Of its generator.
    rng: u64,
    /// One for each system that is searched.
    pub tallies: Vec<Tally>,
}

impl State {
    /// A search's start.
    pub fn new(systems: Vec<System>, seed: u64) -> Self {
        let tally = |system| Tally {
            system,
            trials: 0,
            failed: 0,
            operations: 0,
            found: Vec::new(),
            pool: Pool::default(),
        };
        Self { rng: seed, tallies: systems.into_iter().map(tally).collect() }
    }

    /// Simulations of all systems.
    pub fn trials(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.trials).sum()
    }

    /// Operations in all of them.
    pub fn operations(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.operations).sum()
    }

    /// Kinds of trouble that were found in all systems.
    pub fn found(&self) -> usize {
        self.tallies.iter().map(|tally| tally.found.len()).sum()
    }

    /// Can what it would go on with be simulated on `machine`? To be asked of what a file says.
    pub fn check(&self, machine: &Machine) -> Result<(), ScenarioError> {
        let all = self.tallies.iter().flat_map(|tally| tally.pool.scenarios());
        all.into_iter().try_for_each(|scenario| scenario.check(machine))
    }
}

/// What a simulation of a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What was simulated.
    pub scenario: Scenario,
    /// What came of it.
    pub outcome: TrialOutcome,
    /// The first trouble of its kind with its system.
    pub is_new: bool,
}

/// A search.
pub struct Search<'a> {
    space: &'a Space,
    machine: &'a Machine,
    make: Make,
    state: State,
}

/// Random simulations of a system before any variants.
const RANDOM_FIRST: u64 = 24;
/// Failed simulations of a system after which it is left alone. Each keeps the stacks of its vCPUs
/// (see [`crate::Sim`]).
const MOST_FAILED: u64 = 24;

impl<'a> Search<'a> {
    /// Goes on from `state`, on `machine`.
    pub fn new(space: &'a Space, machine: &'a Machine, state: State) -> Self {
        Self::on(space, machine, state, subjects)
    }

    pub(crate) fn on(space: &'a Space, machine: &'a Machine, state: State, make: Make) -> Self {
        Self { space, machine, make, state }
    }

    /// Where it is.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The system with the fewest simulations. None: there is something wrong with all.
    fn next(&self) -> Option<usize> {
        let tally = |ix: &usize| &self.state.tallies[*ix];
        let sound = (0..self.state.tallies.len()).filter(|ix| tally(ix).failed < MOST_FAILED);
        sound.min_by_key(|ix| tally(ix).operations)
    }

    /// Draws a scenario and simulates it. None: every system has failed so often that nothing is left
    /// to do, or `brake` was pulled: then the next step will draw the same scenario.
    pub fn step(&mut self, brake: &Brake) -> Result<Option<Step>, SimSpecError> {
        let Some(ix) = self.next() else { return Ok(None) };
        let mut rng = SplitMix64::new(self.state.rng);
        let tally = &self.state.tallies[ix];
        let seen = if tally.trials < RANDOM_FIRST || rng.below(2) == 0 {
            None
        } else {
            tally.pool.next(self.space, &mut rng)
        };
        let scenario = seen.unwrap_or_else(|| self.space.draw(tally.system, &mut rng));
        let outcome = scenario.run(self.machine, self.make, brake, MOST_EVENTS)?;
        let Some(outcome) = outcome else { return Ok(None) };
        self.state.rng = rng.next_u64();
        let tally = &mut self.state.tallies[ix];
        tally.trials += 1;
        tally.operations += outcome.figures.all();
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

    /// Makes what a step found small, as far as it gets before `brake` is pulled.
    pub fn shrink(&self, step: &Step, brake: &Brake) -> Shrunk {
        let run = |scenario: &Scenario| {
            scenario.run(self.machine, self.make, brake, MOST_EVENTS).ok().flatten()
        };
        shrink(&step.scenario, &step.outcome, brake, run)
    }
}
