//! Progress for whoever sits here, and a status for whoever asks.

use super::Progress;
use crate::lab::{
    point::Point,
    run::{Order, Watcher, job::Live, status::Board},
    spec::PlannedCell,
    store::record::CellLine,
};

/// Tells both.
#[derive(Debug)]
pub(super) struct Tee<'a> {
    pub(super) progress: Progress<'a>,
    pub(super) board: Board<'a>,
}

impl Watcher for Tee<'_> {
    fn started(&mut self, cell: &PlannedCell, point: &Point) {
        self.progress.started(cell, point);
        self.board.started(cell, point);
    }

    fn ended(&mut self, line: &CellLine) {
        self.progress.ended(line);
        self.board.ended(line);
    }

    fn died(&mut self, cell: &PlannedCell, why: &str) {
        self.progress.died(cell, why);
        self.board.died(cell, why);
    }

    fn untraced(&mut self, cell: &PlannedCell, why: &str) {
        self.progress.untraced(cell, why);
    }

    fn ordered(&mut self, order: Order) {
        self.progress.ordered(order);
        self.board.ordered(order);
    }

    fn wants_live(&self) -> bool {
        self.board.wants_live()
    }

    fn live(&mut self, live: Live) {
        self.board.live(live);
    }
}
