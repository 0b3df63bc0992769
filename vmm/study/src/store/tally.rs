//! Counts the cells of a store by how they ended.

use std::collections::BTreeMap;

use super::{
    Contents,
    record::{CellLine, Figures, Outcome},
};

/// The cells of a run, by how they ended. A cell that was measured again counts as it ended then.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// With figures.
    pub done: u32,
    /// Without.
    pub failed: u32,
    /// With a lock that violated mutual exclusion or its order, which is a bug. They may have figures.
    pub broken: u32,
    /// To be measured: not begun, or aborted.
    pub left: u32,
}

impl Contents {
    /// The line that counts of each cell: the last one, as a cell may have been run again.
    pub fn last_of_each(&self) -> BTreeMap<u32, &CellLine> {
        self.cells.iter().map(|cell| (cell.cell, cell)).collect()
    }

    /// The cells by how they ended.
    pub fn tally(&self) -> Tally {
        let last = self.last_of_each();
        let number =
            |is: fn(&CellLine) -> bool| last.values().filter(|cell| is(cell)).count() as u32;
        let ended = number(CellLine::is_ended);
        Tally {
            done: number(|cell| cell.figures().is_some()),
            failed: number(CellLine::has_failed),
            broken: number(CellLine::is_broken),
            left: self.run.cells.saturating_sub(ended),
        }
    }
}

impl CellLine {
    /// The figures; None if it has none, if its rate is not a finite number, or if they are of no time.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Done { figures } if figures.seconds > 0.0 && figures.rate().is_finite() => {
                Some(figures)
            }
            _ => None,
        }
    }

    /// Has a lock failed in it?
    pub fn is_broken(&self) -> bool {
        matches!(&self.outcome, Outcome::Done { figures } if figures.is_broken())
    }

    /// Has it ended without figures, for a reason that need not be the lock's? It may be measured again.
    pub fn has_failed(&self) -> bool {
        self.is_ended() && self.figures().is_none() && !self.is_broken()
    }
}
