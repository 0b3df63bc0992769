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

pub use engine::{loom::check as with_loom, shuttle::check as with_shuttle};
pub use scenario::{At, Handoff, Irq, Op, Program, Scenario};
pub use scenarios::{FOR_LOOM, FOR_SHUTTLE};

/// The product's lock, or a mutant of it.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its name; `plain` is the product.
    pub name: &'static str,
    /// What it breaks.
    pub rule: &'static str,
    /// One execution of a scenario under loom.
    pub loom: Execution,
    /// The same under shuttle.
    pub shuttle: Execution,
}

/// Runs a scenario once, inside an engine; panics when something is wrong.
pub type Execution = fn(&'static Scenario);

include!(concat!(env!("OUT_DIR"), "/variants.rs"));
