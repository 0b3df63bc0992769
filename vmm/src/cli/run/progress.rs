//! Progress of a run: a bar on a terminal, otherwise one line per cell.

use std::{
    collections::HashSet,
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::ProgressBar;

use crate::{
    cli::bar::on_stderr,
    lab::run::{Order, Watcher, estimate, estimate_cell},
    streams::say,
};
use base::shown;
use report::si::si;
use study::{
    point::Point,
    spec::{Experiment, PlannedCell},
    store::record::{CellLine, Outcome},
};

/// Shows the progress on stderr.
#[derive(Debug)]
pub(in crate::cli) struct Progress<'a> {
    experiment: &'a Experiment,
    /// The first failure ends the run.
    stops_at_failure: bool,
    has_failed: bool,
    bar: Option<ProgressBar>,
    cells: usize,
    ended: usize,
}

impl<'a> Progress<'a> {
    /// For the cells that are not `finished`.
    pub(in crate::cli) fn new(
        experiment: &'a Experiment,
        finished: &HashSet<u32>,
        stops_at_failure: bool,
    ) -> Self {
        let whole = estimate(experiment, finished, 1);
        let bar = io::stderr().is_terminal().then(|| bar(whole));
        let cells = experiment.cells().len();
        let ended = finished.len();
        Self { experiment, stops_at_failure, has_failed: false, bar, cells, ended }
    }

    /// Counts only the cells that are left: those of a task's own unit.
    pub(in crate::cli) fn of_unit(mut self) -> Self {
        self.cells = self.cells.saturating_sub(self.ended);
        self.ended = 0;
        self
    }

    fn say(&self, text: &str) {
        let write = || say(format_args!("{text}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn counted(&self) -> String {
        format!("{}/{}", self.ended, self.cells)
    }
}

/// The bar's unit is a millisecond of estimated cell time, so that it can show the time left from
/// the first cell on.
fn bar(whole: Duration) -> ProgressBar {
    let length = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX);
    let bar = on_stderr(Some(length), "{bar:30} {prefix} cells, {eta} left  {msg}");
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

impl Watcher for Progress<'_> {
    fn started(&mut self, _: &PlannedCell, point: &Point) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(self.counted());
            bar.set_message(shown::line(&point.to_string()).into_owned());
        }
    }

    fn ended(&mut self, line: &CellLine) {
        self.has_failed |= matches!(line.outcome, Outcome::Failed { .. });
        self.ended += usize::from(line.outcome != Outcome::Aborted);
        let gave = match &line.outcome {
            Outcome::Done { figures } => format!("{}/s", si(figures.rate())),
            Outcome::Failed { error, .. } => format!("failed: {error}"),
            Outcome::Aborted => "aborted".to_owned(),
        };
        if let Some(bar) = &self.bar {
            let span = estimate_cell(self.experiment, &line.point);
            bar.inc(u64::try_from(span.as_millis()).unwrap_or(0));
            bar.set_prefix(self.counted());
        }
        if self.bar.is_none() || matches!(line.outcome, Outcome::Failed { .. }) {
            self.say(&format!("cell {}: {}: {gave}", self.counted(), line.point));
        }
    }

    fn died(&mut self, cell: &PlannedCell, why: &str) {
        self.say(&format!("note: cell {} is run again: {why}", cell.cell));
    }

    fn untraced(&mut self, cell: &PlannedCell, why: &str) {
        self.say(&format!("note: cell {} is not in the trace: {why}", cell.cell));
    }

    fn has_enough(&self) -> bool {
        self.stops_at_failure && self.has_failed
    }

    fn ordered(&mut self, order: Order) {
        self.say(match order {
            Order::Pause => "paused: no further cell is started",
            Order::Resume => "resumed",
            Order::Stop => "stopping: the running cell is aborted; repeat to end at once",
        });
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::testing::experiment;

    /// A task leaves the cells of the other units to other tasks, and has not done them. Wrong before:
    /// its log began at `cell 3/4`.
    #[test]
    fn a_task_counts_the_cells_of_its_own_unit() {
        let experiment = experiment();
        let others = HashSet::from([0, 1]);
        let progress = |finished| Progress::new(&experiment, finished, false);
        assert_eq!(progress(&others).counted(), "2/4", "a run that is resumed");
        assert_eq!(progress(&others).of_unit().counted(), "0/2");
        assert_eq!(progress(&HashSet::new()).of_unit().counted(), "0/4");
    }
}
