//! Scenarios worth varying.

use std::mem;

use base::rng::SplitMix64;
use serde::{Deserialize, Serialize};

use super::bound::Bounds;
use super::{Scenario, Space, TrialOutcome};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RankedScenario {
    /// Operations with which others passed one waiter, in thousandths of all operations.
    passed: u64,
    /// Sort key of its list, descending.
    score: u64,
    scenario: Scenario,
}

/// Maximum number of scenarios per list.
const CAPACITY: usize = 6;
/// A waiter may starve if this many thousandths of all operations passed it.
const STARVED: u64 = 250;
/// Maximum number of operations of a simulation.
const MAX_OPERATIONS: u64 = 250_000;
/// Words of the set of hashes.
const WORDS: usize = 16;

/// The scenarios of one system in which a waiter was passed most often, those in which a waiter
/// waited longest, and the last with new behavior. The size is bounded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    passed: Vec<RankedScenario>,
    longest: Vec<RankedScenario>,
    new: Vec<RankedScenario>,
    /// A set of hashes of rounded figures, one bit each.
    seen: [u64; WORDS],
}

impl Pool {
    fn entries(&self) -> impl Iterator<Item = &RankedScenario> {
        [&self.passed, &self.longest, &self.new].into_iter().flatten()
    }

    pub(super) fn scenarios(&self) -> impl Iterator<Item = &Scenario> {
        self.entries().map(|ranked| &ranked.scenario)
    }

    /// Draws the next scenario from the pool: a variant, or a longer run. `None` if the pool is empty.
    pub(super) fn next(&self, space: &Space, rng: &mut SplitMix64) -> Option<Scenario> {
        let drawn = rng.below(self.entries().count().max(1));
        let RankedScenario { passed, scenario, .. } = self.entries().nth(drawn)?;
        if *passed >= STARVED && scenario.operations < MAX_OPERATIONS && rng.below(2) == 0 {
            // The same scenario, continued for longer.
            let operations = (scenario.operations * 4).min(MAX_OPERATIONS);
            return Some(Scenario { operations, ..scenario.clone() });
        }
        Some(space.vary(scenario, rng))
    }

    /// Adds a scenario without trouble, if it is among the worst or shows new behavior.
    pub(super) fn consider(&mut self, scenario: &Scenario, outcome: &TrialOutcome) {
        let (figures, waits) = (&outcome.figures, outcome.waits);
        let n = scenario.vcpus.max(1) as u64;
        // A waiter in line is soon passed as often as its bound permits: with a bound, only
        // throttled waiters are informative.
        let passed = match Bounds::new(scenario) {
            Bounds { throttled: Some(_), .. } => waits.throttled,
            Bounds { in_line: Some(_), .. } => 0,
            _ => waits.in_line,
        };
        let passed = passed * 1_000 / figures.total().max(1);
        // Operations during the longest wait, in thousandths of a round of one operation per vCPU.
        let share = waits.longest.0 as f64 / figures.time.0.max(1) as f64;
        let longest = (share * figures.total() as f64 * 1_000.0 / n as f64) as u64;
        let ranked = |score| RankedScenario { passed, score, scenario: scenario.clone() };
        keep_worst(&mut self.passed, ranked(passed));
        keep_worst(&mut self.longest, ranked(longest));
        let rough = [
            figures.per_operation(figures.halts),
            figures.per_operation(figures.kicks),
            figures.per_operation(figures.slow),
            passed as f64 / 100.0,
            longest as f64 / 100.0,
        ];
        if self.is_new(&rough.map(|figure| (figure * 8.0 + 1.0).log2() as u64)) {
            self.new.push(ranked(0));
            if self.new.len() > CAPACITY {
                self.new.remove(0);
            }
        }
    }

    /// Adds the figures to the set. Returns whether nothing similar was in it.
    fn is_new(&mut self, rough: &[u64]) -> bool {
        let hash = rough.iter().fold(0, |hash, part| SplitMix64::new(hash ^ part).next_u64());
        let bit = hash as usize % (WORDS * 64);
        let word = &mut self.seen[bit / 64];
        let before = mem::replace(word, *word | 1 << (bit % 64));
        before != *word
    }
}

fn keep_worst(entries: &mut Vec<RankedScenario>, ranked: RankedScenario) {
    let place = entries.partition_point(|entry| entry.score >= ranked.score);
    if place < CAPACITY {
        entries.insert(place, ranked);
        entries.truncate(CAPACITY);
    }
}
