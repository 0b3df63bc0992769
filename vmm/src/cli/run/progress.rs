//! How far a run is: a bar on a terminal, a line a cell without.

use std::{
    collections::HashSet,
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    lab::{
        point::Point,
        run::{Order, Watcher, estimate, estimate_cell},
        spec::{Experiment, PlannedCell},
        store::record::{CellLine, Outcome},
    },
    report::si::si,
    shown,
    streams::say,
};

/// Shows it on stderr.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    experiment: &'a Experiment,
    bar: Option<ProgressBar>,
    cells: usize,
    ended: usize,
}

impl<'a> Progress<'a> {
    /// Of the cells that are not `finished`.
    pub(super) fn new(experiment: &'a Experiment, finished: &HashSet<u32>) -> Self {
        let whole = estimate(experiment, finished, 1);
        let bar = io::stderr().is_terminal().then(|| bar(whole));
        Self { experiment, bar, cells: experiment.cells().len(), ended: finished.len() }
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

/// Its unit is a millisecond of what the cells may take, so that what is left is known from the
/// first one on.
fn bar(whole: Duration) -> ProgressBar {
    let length = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX);
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    // The template is a constant that indicatif accepts; if it did not, its default serves.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {prefix} cells, {eta} left  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
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

    fn ordered(&mut self, order: Order) {
        self.say(match order {
            Order::Pause => "paused: no cell is begun",
            Order::Resume => "going on",
            Order::Stop => "stopping: the cell under way is aborted; once more to end at once",
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
