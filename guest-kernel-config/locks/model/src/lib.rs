//! The wake latch and the PV ticketlock together, under model checkers.
//!
//! Two engines run the product's own sources (`build.rs`): loom tries every schedule of a small
//! machine within a bound, and every value that a load may see; shuttle tries many schedules of
//! a larger one. A [`Scenario`] says what the machine's CPUs do, and the machine itself is in
//! `machine.rs`. See `README.md`.

#![forbid(unsafe_code)]

mod engine;
mod memory;
mod scenario;
mod scenarios;
pub mod sleep;

pub use scenario::{At, Handoff, Irq, Op, Program, Scenario};
use scenarios::{FOR_LOOM, FOR_SHUTTLE};

/// The product's lock, or a mutant of it.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its name; `plain` is the product.
    pub name: &'static str,
    /// What it breaks.
    pub rule: &'static str,
    /// Why it passes every check, if it does.
    pub harmless: Option<&'static str>,
    /// One execution of a scenario under each engine that is to run it.
    pub executions: &'static [(Engine, Execution)],
}

/// Who chooses the schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// All within a bound, and old values for loads.
    Loom,
    /// Many, drawn.
    Shuttle,
}

impl Engine {
    /// What it is to run.
    pub fn scenarios(self) -> &'static [Scenario] {
        match self {
            Self::Loom => FOR_LOOM,
            Self::Shuttle => FOR_SHUTTLE,
        }
    }

    /// Runs `scenario` in as many ways as it says; panics when one goes wrong.
    pub fn check(self, run: Execution, scenario: &'static Scenario) {
        match self {
            Self::Loom => engine::loom::check(run, scenario, scenario.effort),
            Self::Shuttle => engine::shuttle::check(run, scenario, scenario.effort),
        }
    }
}

/// Runs a scenario once, inside an engine; panics when something is wrong.
pub type Execution = fn(&'static Scenario);

include!(concat!(env!("OUT_DIR"), "/variants.rs"));
