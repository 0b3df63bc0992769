//! Counts the cells of a store by outcome.

use std::collections::BTreeMap;

use super::{
    Contents,
    record::{CellLine, Figures, Outcome},
};

/// The cells of a run by outcome. Only the last outcome of a repeated cell counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Cells with figures.
    pub done: u32,
    /// Cells that ended without figures, unless `broken`.
    pub failed: u32,
    /// Cells whose lock violated mutual exclusion or its order, which is a bug. They may have figures.
    pub broken: u32,
    /// Cells still to be measured: not begun, or aborted.
    pub remaining: u32,
}

impl Contents {
    /// Returns the line that counts for each cell: the last line, because cells may be run again.
    pub fn last_lines(&self) -> BTreeMap<u32, &CellLine> {
        self.cells.iter().map(|cell| (cell.cell, cell)).collect()
    }

    /// Counts the cells by outcome.
    pub fn tally(&self) -> Tally {
        let last = self.last_lines();
        let number =
            |has: fn(&CellLine) -> bool| last.values().filter(|cell| has(cell)).count() as u32;
        let ended = number(CellLine::is_ended);
        Tally {
            done: number(|cell| cell.figures().is_some()),
            failed: number(CellLine::has_failed),
            broken: number(CellLine::is_broken),
            remaining: self.run.cells.saturating_sub(ended),
        }
    }
}

impl CellLine {
    /// Returns the figures; None without figures, or if the window's length is not positive or the rate infinite.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.outcome {
            Outcome::Done { figures } if figures.seconds > 0.0 && figures.rate().is_finite() => {
                Some(figures)
            }
            _ => None,
        }
    }

    /// Whether a lock has failed in the cell.
    pub fn is_broken(&self) -> bool {
        matches!(&self.outcome, Outcome::Done { figures } if figures.is_broken())
    }

    /// Whether the cell ended without figures, for a reason unrelated to the lock. It may be measured again.
    pub fn has_failed(&self) -> bool {
        self.is_ended() && self.figures().is_none() && !self.is_broken()
    }
}
