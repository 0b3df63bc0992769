//! Mutexes, counters and lockrefs under the same engines.
//!
//! `build/sleep.rs` makes the variants, each with `sleep/machine.rs` and the checks of its system.

use crate::Engine;

/// A system as it is, or a mutant of it.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its system, a colon, and `plain` for the product.
    pub name: &'static str,
    /// What it breaks.
    pub rule: &'static str,
    /// Who runs it.
    pub engine: Engine,
    /// What is to come of it.
    pub verdict: Verdict,
    /// What it goes through.
    pub checks: &'static [Check],
}

/// What the checks of a variant are to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the product, which passes.
    Sound,
    /// A check catches it.
    Caught,
    /// It passes, and why.
    Harmless(&'static str),
}

/// Something that CPUs do together.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// What it is about.
    pub name: &'static str,
    /// Does it once, inside an engine; panics when something is wrong.
    pub run: fn(),
    /// Preemptions for loom; zero: not for loom.
    pub preemptions: usize,
    /// Executions for shuttle, of either scheduler; zero: not for shuttle.
    pub times: usize,
}

impl Check {
    /// Is it for `engine` at all?
    pub fn is_for(&self, engine: Engine) -> bool {
        match engine {
            Engine::Loom => self.preemptions > 0,
            Engine::Shuttle => self.times > 0,
        }
    }

    /// Does it in as many ways as it says; panics when one goes wrong.
    pub fn explore(&self, engine: Engine) {
        match engine {
            Engine::Loom => crate::engine::loom::explore(self.run, self.preemptions),
            Engine::Shuttle => crate::engine::shuttle::explore(self.run, self.times),
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/sleep_variants.rs"));
