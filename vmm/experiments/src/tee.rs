//! Reports a run's events to the progress display and to the control socket.

use crate::progress::Progress;
use lab::run::{Order, Watcher, status::Board};
use study::{live::Live, point::Point, spec::PlannedCell, store::record::CellLine};

/// Passes every event on to both.
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

    fn died(&mut self, cell: &PlannedCell, reason: &str) {
        self.progress.died(cell, reason);
        self.board.died(cell, reason);
    }

    fn untraced(&mut self, cell: &PlannedCell, reason: &str) {
        self.progress.untraced(cell, reason);
    }

    fn has_enough(&self) -> bool {
        self.progress.has_enough()
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
