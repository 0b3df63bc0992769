//! Model checks of the locks, the wake latch and the VMM's halts.
//!
//! Two engines run the product's own sources (`build.rs`): loom tries every schedule of a small
//! machine within a bound, and every value that a load may see; shuttle tries many schedules of a
//! larger machine. `machine.rs` is the machine of the spinlocks, and a [`Scenario`] is the work of
//! its CPUs; `sleep/` and `halts/` have the machines of the other systems, with their checks. See
//! `README.md`.

#![forbid(unsafe_code)]

mod engine;
mod memory;
mod scenario;
mod scenarios;
mod spin_scenarios;

pub use scenario::{At, Handoff, Irq, Op, Program, Scenario};
use scenarios::{FOR_LOOM, FOR_SHUTTLE};
use spin_scenarios::{ANY_FOR_LOOM, ANY_FOR_SHUTTLE};

/// A system of the product, or a mutant of it.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Ends in `plain` for the product.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// The expected result of its checks.
    pub expectation: Expectation,
    /// The runs that it needs.
    pub executions: &'static [Execution],
}

/// The expected result of a variant's checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// The variant is the product, which passes.
    Sound,
    /// A check catches it.
    Caught,
    /// It passes, for this reason.
    Harmless(&'static str),
}

/// A system of a variant under an engine.
#[derive(Debug, Clone, Copy)]
pub struct Execution {
    /// The engine that chooses the schedules.
    pub engine: Engine,
    /// The lock's type, or the name of the system.
    pub subject: &'static str,
    /// Its checks.
    pub checks: Checks,
}

/// The checks of a system.
#[derive(Debug, Clone, Copy)]
pub enum Checks {
    /// Scenarios of spinlocks; `has_handoffs`: including handoff options.
    Scenarios { run: ScenarioFn, has_handoffs: bool },
    /// Programs of other systems.
    Programs(&'static [&'static [Check]]),
}

impl Execution {
    /// The checks that its engine runs.
    pub fn checks(&self) -> Vec<Check> {
        match self.checks {
            Checks::Scenarios { run, has_handoffs } => {
                let scenarios = match (self.engine, has_handoffs) {
                    (Engine::Loom, true) => FOR_LOOM,
                    (Engine::Loom, false) => ANY_FOR_LOOM,
                    (Engine::Shuttle, true) => FOR_SHUTTLE,
                    (Engine::Shuttle, false) => ANY_FOR_SHUTTLE,
                };
                let check = |scenario| Check::of_scenario(self.subject, run, scenario);
                scenarios.iter().map(check).collect()
            }
            Checks::Programs(checks) => {
                let checks = checks.iter().copied().flatten();
                checks.filter(|check| check.effort(self.engine) > 0).copied().collect()
            }
        }
    }
}

/// A program for several CPUs.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    pub subject: &'static str,
    pub name: &'static str,
    work: Work,
    preemptions: usize,
    times: usize,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Program(fn()),
    Scenario(ScenarioFn, &'static Scenario),
}

impl Check {
    /// `run` runs the check once, inside an engine, and panics if it fails. loom allows
    /// `preemptions` preemptions, shuttle runs it `times` times per scheduler; zero: not at all.
    pub const fn new(
        subject: &'static str,
        name: &'static str,
        run: fn(),
        preemptions: usize,
        times: usize,
    ) -> Self {
        Self { subject, name, work: Work::Program(run), preemptions, times }
    }

    fn of_scenario(subject: &'static str, run: ScenarioFn, scenario: &'static Scenario) -> Self {
        let (work, effort) = (Work::Scenario(run, scenario), scenario.effort);
        Self { subject, name: scenario.name, work, preemptions: effort, times: effort }
    }

    fn effort(&self, engine: Engine) -> usize {
        match engine {
            Engine::Loom => self.preemptions,
            Engine::Shuttle => self.times,
        }
    }

    /// Runs the check with its effort; panics if one execution fails.
    pub fn explore(&self, engine: Engine) {
        let (work, effort) = (self.work, self.effort(engine));
        let once = move || match work {
            Work::Program(run) => run(),
            Work::Scenario(run, scenario) => run(scenario),
        };
        match engine {
            Engine::Loom => engine::loom::explore(once, effort),
            Engine::Shuttle => engine::shuttle::explore(once, effort),
        }
    }
}

/// The engine that chooses the schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// All schedules within a bound, and all values that loads may see.
    Loom,
    /// Many random schedules.
    Shuttle,
}

/// Runs a scenario once, inside an engine; panics if it fails.
pub type ScenarioFn = fn(&'static Scenario);

include!(concat!(env!("OUT_DIR"), "/variants.rs"));
