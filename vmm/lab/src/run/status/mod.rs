//! The status of a run, for `pvticket top` and other clients of the control socket.

use std::{
    collections::{HashSet, VecDeque},
    path::Path,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{Order, Watcher, estimate_cell};
use study::{
    live::Live,
    point::Point,
    spec::{Experiment, PlannedCell},
    status::{AtWork, Past, PastEnd, RunState, Status, VERSION},
    store::record::{CellLine, Outcome},
};

/// How many of the last ended cells a status lists.
const REMEMBERED: usize = 10;

/// A status and the time at which it was taken.
#[derive(Debug, Clone)]
pub struct Dated {
    at: Instant,
    status: Status,
}

impl Dated {
    /// The status at `now`, given that no event has happened since: only the times advance.
    pub fn at(&self, now: Instant) -> Status {
        let span = now.saturating_duration_since(self.at).as_secs_f64();
        let mut status = self.status.clone();
        if status.state != RunState::Ended {
            status.seconds += span;
            status.at_work.iter_mut().for_each(|cell| cell.seconds += span);
            if !status.at_work.is_empty() {
                status.eta = (status.eta - span).max(0.0);
            }
        }
        status
    }

    /// The run's state.
    pub fn state(&self) -> RunState {
        self.status.state
    }
}

/// Maintains the status of a run and publishes it to subscribers.
#[derive(Debug)]
pub struct Board<'a> {
    experiment: &'a Experiment,
    jobs: usize,
    show: watch::Sender<Dated>,
    pace: CellPace,
}

/// How long cells take, compared with their estimates.
#[derive(Debug, Default)]
struct CellPace {
    /// Estimate for the cells that are left.
    left: Duration,
    /// Estimate for the cells that have ended; `took` is their real time.
    thought: f64,
    took: f64,
}

impl CellPace {
    fn ended(&mut self, thought: Duration, took: f64) {
        self.left = self.left.saturating_sub(thought);
        self.thought += thought.as_secs_f64();
        self.took += took;
    }

    /// Time for the cells that are left, less what those under way have taken already.
    fn eta(&self, jobs: usize, under_way: f64) -> f64 {
        let factor = if self.thought > 0.0 { self.took / self.thought } else { 1.0 };
        ((self.left.as_secs_f64() * factor - under_way) / jobs.max(1) as f64).max(0.0)
    }
}

impl<'a> Board<'a> {
    /// The status of a run in `dir`. The cells `finished` have ended in former sessions, `failed` of
    /// them by a failure.
    pub fn new(
        experiment: &'a Experiment,
        finished: &HashSet<u32>,
        failed: u32,
        jobs: usize,
        dir: &Path,
    ) -> Self {
        let cells = experiment.cells();
        let left = cells.iter().filter(|cell| !finished.contains(&cell.cell));
        let estimate =
            |cell: &PlannedCell| estimate_cell(experiment, &experiment.points[cell.point]);
        let pace = CellPace { left: left.map(estimate).sum(), ..CellPace::default() };
        let status = Status {
            version: VERSION,
            name: experiment.name.clone(),
            dir: dir.display().to_string(),
            state: RunState::Running,
            cells: cells.len() as u32,
            done: (finished.len() as u32).saturating_sub(failed),
            failed,
            aborted: 0,
            left: (cells.len() - finished.len()) as u32,
            seconds: 0.0,
            eta: pace.eta(jobs, 0.0),
            at_work: Vec::new(),
            last: VecDeque::new(),
        };
        let (show, _) = watch::channel(Dated { at: Instant::now(), status });
        Self { experiment, jobs, show, pace }
    }

    /// A receiver of every change from now on.
    pub fn subscribe(&self) -> watch::Receiver<Dated> {
        self.show.subscribe()
    }

    /// Publishes that the run is over.
    pub fn over(&self) {
        self.change(|status| {
            status.state = RunState::Ended;
            status.at_work.clear();
        });
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        self.show.send_modify(|dated| {
            let now = Instant::now();
            let mut status = dated.at(now);
            change(&mut status);
            let under_way = status.at_work.iter().map(|cell| cell.seconds).sum();
            status.eta = self.pace.eta(self.jobs, under_way);
            *dated = Dated { at: now, status };
        });
    }
}

impl Watcher for Board<'_> {
    fn started(&mut self, cell: &PlannedCell, point: &Point) {
        let &PlannedCell { cell, round, .. } = cell;
        let at_work = AtWork { cell, round, point: point.clone(), seconds: 0.0, live: None };
        self.change(|status| status.at_work.push(at_work));
    }

    fn ended(&mut self, line: &CellLine) {
        let aborted = line.outcome == Outcome::Aborted;
        if !aborted {
            self.pace.ended(estimate_cell(self.experiment, &line.point), line.took);
        }
        self.change(|status| {
            status.at_work.retain(|cell| cell.cell != line.cell);
            status.left = status.left.saturating_sub(1);
            let end = match &line.outcome {
                Outcome::Done { figures } => PastEnd::Done(figures.rate()),
                Outcome::Failed { error, .. } => PastEnd::Failed(error.clone()),
                Outcome::Aborted => PastEnd::Aborted,
            };
            *match end {
                PastEnd::Done(_) => &mut status.done,
                PastEnd::Failed(_) => &mut status.failed,
                PastEnd::Aborted => &mut status.aborted,
            } += 1;
            status.last.truncate(REMEMBERED - 1);
            let (cell, round, point, took) = (line.cell, line.round, line.point.clone(), line.took);
            status.last.push_front(Past { cell, round, point, took, end });
        });
    }

    fn died(&mut self, cell: &PlannedCell, _: &str) {
        self.change(|status| status.at_work.retain(|other| other.cell != cell.cell));
    }

    fn ordered(&mut self, order: Order) {
        self.change(|status| {
            status.state = match (status.state, order) {
                (RunState::Ended, _) => RunState::Ended,
                (RunState::Stopping, _) | (_, Order::Stop) => RunState::Stopping,
                (_, Order::Pause) => RunState::Paused,
                (_, Order::Resume) => RunState::Running,
            };
        });
    }

    fn wants_live(&self) -> bool {
        true
    }

    fn live(&mut self, live: Live) {
        self.change(|status| {
            let mut at_work = status.at_work.iter_mut();
            if let Some(cell) = at_work.find(|cell| cell.cell == live.cell) {
                cell.live = Some(live);
            }
        });
    }
}

#[cfg(test)]
pub(crate) mod tests;
