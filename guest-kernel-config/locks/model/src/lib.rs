//! Model checks of the wake latch and the spinlocks together.
//!
//! Two engines run the product's own sources (`build.rs`): loom tries every schedule of a small
//! machine within a bound, and every value that a load may see; shuttle tries many schedules of a
//! larger one. A [`Scenario`] says what the machine's CPUs do; `machine.rs` is the machine. See
//! `README.md`.

#![forbid(unsafe_code)]

mod engine;
pub mod halts;
mod memory;
mod scenario;
mod scenarios;
pub mod sleep;
mod spin_scenarios;

pub use scenario::{At, Handoff, Irq, Op, Program, Scenario};
use scenarios::{FOR_LOOM, FOR_SHUTTLE};
use spin_scenarios::{ANY_FOR_LOOM, ANY_FOR_SHUTTLE};

/// The product's lock, or a mutant of it.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its name; `plain` is the product.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// Why it passes every check, if it does.
    pub harmless: Option<&'static str>,
    /// The runs that it needs.
    pub executions: &'static [Execution],
}

/// A lock of a variant under an engine.
#[derive(Debug, Clone, Copy)]
pub struct Execution {
    /// The engine that chooses the schedules.
    pub engine: Engine,
    /// The name of the lock's type.
    pub lock: &'static str,
    /// Is it the lock with cheaper handoffs, and checks of them?
    pub has_handoffs: bool,
    /// Runs a scenario once, inside the engine.
    pub run: ScenarioFn,
}

impl Execution {
    /// The scenarios to run.
    pub fn scenarios(&self) -> &'static [Scenario] {
        match (self.engine, self.has_handoffs) {
            (Engine::Loom, true) => FOR_LOOM,
            (Engine::Loom, false) => ANY_FOR_LOOM,
            (Engine::Shuttle, true) => FOR_SHUTTLE,
            (Engine::Shuttle, false) => ANY_FOR_SHUTTLE,
        }
    }

    /// Runs `scenario` as often as it asks for; panics if one execution fails.
    pub fn check(&self, scenario: &'static Scenario) {
        match self.engine {
            Engine::Loom => engine::loom::check(self.run, scenario, scenario.effort),
            Engine::Shuttle => engine::shuttle::check(self.run, scenario, scenario.effort),
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
