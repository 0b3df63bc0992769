//! How far a sweep is, from its parts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    path::Path,
    time::Duration,
};

use crate::run::estimate_cell;
use study::{
    spec::{Experiment, PlannedCell},
    store::{
        StoreError,
        record::Outcome,
        sweep::{self, End, PARTS, Part, record::SweepLine},
    },
};

/// What is known of a part.
#[derive(Debug, Clone)]
struct KnownPart {
    bytes: u64,
    unit: Option<u32>,
    /// The attempt's submission, and its restart within that.
    attempt: (u32, u32),
    node: String,
    is_whole: bool,
    /// Cells of the part that have ended: number, seconds that the cell took, whether it failed.
    cells: Vec<(u32, f64, bool)>,
}

impl KnownPart {
    fn new(part: &Part, bytes: u64) -> Self {
        let attempt = part.attempt();
        let cells = part.cells.iter().filter(|cell| cell.is_ended());
        let is_failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed { .. });
        Self {
            bytes,
            unit: attempt.map(|attempt| attempt.unit),
            attempt: attempt
                .map(|attempt| (attempt.submission, attempt.restart))
                .unwrap_or_default(),
            node: attempt.map(|attempt| attempt.node.clone()).unwrap_or_default(),
            is_whole: part.end == End::Whole,
            cells: cells.map(|cell| (cell.cell, cell.took, is_failed(&cell.outcome))).collect(),
        }
    }

    /// The part's place among all: whole parts first, since other attempts at the same unit do not count; then attempts in
    /// the order of their submissions and restarts, which is not that of their names (10 is before 9 there).
    fn place<'a>(&self, name: &'a str) -> (bool, (u32, u32), &'a str) {
        (!self.is_whole, self.attempt, name)
    }
}

/// Follows the parts of a sweep. A part is read again only if its length has changed, and not once it is whole.
#[derive(Debug)]
pub struct Tracker<'a> {
    experiment: &'a Experiment,
    sweep: &'a SweepLine,
    cells: Vec<PlannedCell>,
    known: HashMap<String, KnownPart>,
}

/// The state of a sweep's units and cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Units with a whole attempt.
    pub whole: BTreeSet<u32>,
    /// Cells of whole units that have figures.
    pub done: u32,
    /// Cells of whole units that failed.
    pub failed: u32,
    /// Cells of other units that have ended.
    pub begun: u32,
    /// How many whole units each node ran.
    pub nodes: BTreeMap<String, u32>,
    /// For each other unit with an attempt, the node of the last one.
    pub attempts: BTreeMap<u32, String>,
    /// Estimated time of the cells that are left, if their tasks run one after the other.
    pub left: Duration,
}

impl<'a> Tracker<'a> {
    /// Follows the parts of this sweep.
    pub fn new(experiment: &'a Experiment, sweep: &'a SweepLine) -> Self {
        Self { experiment, sweep, cells: experiment.cells(), known: HashMap::new() }
    }

    /// Reads the parts in `dir` that are new or have changed, and returns the state.
    pub fn look(&mut self, dir: &Path) -> Result<State, StoreError> {
        for name in sweep::names(dir)? {
            if self.known.get(&name).is_some_and(|known| known.is_whole) {
                continue;
            }
            // Over NFS the length may lag behind; then the next look finds more.
            let bytes = fs::metadata(dir.join(PARTS).join(&name)).map_or(0, |facts| facts.len());
            if self.known.get(&name).is_none_or(|known| known.bytes != bytes) {
                let part = sweep::read_part(dir, &name, self.sweep);
                self.known.insert(name, KnownPart::new(&part, bytes));
            }
        }
        Ok(self.state())
    }

    fn state(&self) -> State {
        let mut state = State::default();
        let mut ended: HashSet<u32> = HashSet::new();
        let (mut estimated, mut took) = (0.0, 0.0);
        let mut names: Vec<(&String, &KnownPart)> = self.known.iter().collect();
        names.sort_by_key(|(name, known)| known.place(name));
        for (_, known) in names {
            let Some(unit) = known.unit else { continue };
            if state.whole.contains(&unit) {
                continue;
            }
            let failed = known.cells.iter().filter(|(_, _, failed)| *failed).count() as u32;
            if known.is_whole {
                state.whole.insert(unit);
                state.failed += failed;
                state.done += known.cells.len() as u32 - failed;
                *state.nodes.entry(known.node.clone()).or_default() += 1;
            } else {
                state.attempts.insert(unit, known.node.clone());
            }
            for (cell, seconds, _) in &known.cells {
                if ended.insert(*cell) {
                    state.begun += u32::from(!known.is_whole);
                    estimated += self.estimate(*cell).as_secs_f64();
                    took += seconds;
                }
            }
        }
        let left = (0..self.cells.len() as u32).filter(|cell| !ended.contains(cell));
        let left: Duration = left.map(|cell| self.estimate(cell)).sum();
        // By the ratio of the time that cells have taken so far to its estimate.
        let pace: f64 = if estimated > 0.0 { took / estimated } else { 1.0 };
        state.left = Duration::try_from_secs_f64(left.as_secs_f64() * pace).unwrap_or(left);
        state
    }

    fn estimate(&self, cell: u32) -> Duration {
        let planned = self.cells.get(cell as usize);
        planned.map_or(Duration::ZERO, |cell| {
            estimate_cell(self.experiment, &self.experiment.points[cell.point])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: by their names, the tenth submission came before the third, and `status` named the node of the latter.
    #[test]
    fn the_last_attempt_is_that_of_the_last_submission() {
        let part = |submission, restart, is_whole| KnownPart {
            bytes: 0,
            unit: Some(0),
            attempt: (submission, restart),
            node: String::new(),
            is_whole,
            cells: Vec::new(),
        };
        let mut parts = [
            ("0.10.0.node.1", part(10, 0, false)),
            ("0.2.11.node.1", part(2, 11, false)),
            ("0.2.3.node.1", part(2, 3, false)),
            ("0.9.0.node.1", part(9, 0, true)),
        ];
        parts.sort_by_key(|(name, known)| known.place(name));
        let order = parts.map(|(name, _)| name);
        assert_eq!(order, ["0.9.0.node.1", "0.2.3.node.1", "0.2.11.node.1", "0.10.0.node.1"]);
    }
}
