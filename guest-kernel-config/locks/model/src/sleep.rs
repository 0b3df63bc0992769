//! Mutexes, counters and lockrefs under the same engines.
//!
//! `build/sleep.rs` makes the variants, each with `sleep/machine.rs` and the checks of its system.

use crate::Engine;

/// A system unchanged, or a mutant of it.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// The system, a colon, and the mutant's name; `plain` is the product.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// The engine that runs it.
    pub engine: Engine,
    /// The expected result.
    pub verdict: Expectation,
    /// Its checks.
    pub checks: &'static [Check],
}

/// The expected result of a variant's checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// It is the product, which passes.
    Sound,
    /// A check catches it.
    Caught,
    /// It passes, for this reason.
    Harmless(&'static str),
}

/// A program for several CPUs.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    pub name: &'static str,
    /// Runs it once, inside an engine; panics if it fails.
    pub run: fn(),
    /// The most preemptions for loom; zero: loom does not run it.
    pub preemptions: usize,
    /// Executions per scheduler of shuttle; zero: shuttle does not run it.
    pub times: usize,
}

impl Check {
    /// Does `engine` run it?
    pub fn is_for(&self, engine: Engine) -> bool {
        match engine {
            Engine::Loom => self.preemptions > 0,
            Engine::Shuttle => self.times > 0,
        }
    }

    /// Runs it as often as it asks for; panics if one execution fails.
    pub fn explore(&self, engine: Engine) {
        match engine {
            Engine::Loom => crate::engine::loom::explore(self.run, self.preemptions),
            Engine::Shuttle => crate::engine::shuttle::explore(self.run, self.times),
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/sleep_variants.rs"));
