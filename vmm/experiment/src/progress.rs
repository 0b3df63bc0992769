//! Progress of a run: a bar on a terminal, otherwise a line for each tenth of the cells and for each
//! failed or aborted cell.

use std::{
    collections::HashSet,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::ProgressBar;

use crate::{
    bar::on_stderr,
    engine::{Watcher, estimate, estimate_cell},
    plan::format_span,
};
use base::{plural::noun, sanitize};
use os::streams::eprint_line;
use study::{
    point::Point,
    spec::{Experiment, PlannedCell},
    store::record::{CellLine, Outcome},
};

/// Shows the progress on stderr.
#[derive(Debug)]
pub struct Progress<'a> {
    experiment: &'a Experiment,
    /// Whether the first failure ends the run.
    stops_at_failure: bool,
    has_failed: bool,
    bar: Option<ProgressBar>,
    cells: usize,
    ended: usize,
    pace: Pace,
}

/// Number of progress lines of a run.
const PARTS: usize = 10;

/// Speed of a run, all jobs together, relative to the estimates of its cells.
#[derive(Debug)]
struct Pace {
    start: Instant,
    /// Estimates for the remaining cells, and for the cells that have ended since.
    remaining: Duration,
    estimated_done: Duration,
}

impl Pace {
    fn new(remaining: Duration) -> Self {
        Self { start: Instant::now(), remaining, estimated_done: Duration::ZERO }
    }

    fn ended(&mut self, estimated_done: Duration) {
        self.remaining = self.remaining.saturating_sub(estimated_done);
        self.estimated_done += estimated_done;
    }

    /// Returns the remaining time after `elapsed`, at the pace of the cells that have ended.
    fn time_remaining(&self, elapsed: Duration) -> Duration {
        if self.estimated_done.is_zero() {
            self.remaining
        } else {
            elapsed.mul_f64(self.remaining.as_secs_f64() / self.estimated_done.as_secs_f64())
        }
    }
}

/// Whether the cell that ended last has completed a tenth of the cells.
const fn completes_a_part(ended: usize, cells: usize) -> bool {
    ended > 0 && cells > 0 && ended * PARTS / cells > (ended - 1) * PARTS / cells
}

impl<'a> Progress<'a> {
    /// Shows the progress of the cells that are not `finished`.
    pub fn new(
        experiment: &'a Experiment,
        finished: &HashSet<u32>,
        stops_at_failure: bool,
    ) -> Self {
        let total = estimate(experiment, finished, 1);
        let bar = io::stderr().is_terminal().then(|| bar(total));
        let cells = experiment.cells().len();
        let ended = finished.len();
        let pace = Pace::new(total);
        Self { experiment, stops_at_failure, has_failed: false, bar, cells, ended, pace }
    }

    fn log(&self, text: &str) {
        let write = || eprint_line(format_args!("{text}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Describes the progress, and the remaining time.
    fn status(&self) -> String {
        let elapsed = self.pace.start.elapsed();
        if self.ended < self.cells {
            format!(
                "measured {}, about {} left",
                self.count(),
                format_span(self.pace.time_remaining(elapsed))
            )
        } else {
            format!("measured {}, after {}", self.count(), format_span(elapsed))
        }
    }

    fn count(&self) -> String {
        format!("{}/{}", self.ended, self.cells)
    }
}

/// Creates the bar. Its unit is a millisecond of estimated cell time, so that it can show the remaining
/// time from the first cell on.
fn bar(total: Duration) -> ProgressBar {
    let length = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
    let bar = on_stderr(Some(length), "{bar:30} {prefix}, {eta} left  {msg}");
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

impl Watcher for Progress<'_> {
    fn started(&mut self, _: &PlannedCell, point: &Point) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!("{} {}", self.count(), noun(self.cells, "cell")));
            bar.set_message(sanitize::line(&point.to_string()).into_owned());
        }
    }

    fn ended(&mut self, line: &CellLine) {
        self.has_failed |= matches!(line.outcome, Outcome::Failed { .. });
        let span = estimate_cell(self.experiment, &line.point);
        let has_ended = line.outcome != Outcome::Aborted;
        if has_ended {
            self.ended += 1;
            self.pace.ended(span);
        }
        if let Some(bar) = &self.bar {
            bar.inc(u64::try_from(span.as_millis()).unwrap_or(0));
            bar.set_prefix(format!("{} {}", self.count(), noun(self.cells, "cell")));
        }
        match &line.outcome {
            Outcome::Failed { error, .. } => {
                self.log(&format!("cell {}: {}: failed: {error}", self.count(), line.point));
            }
            Outcome::Aborted if self.bar.is_none() => {
                self.log(&format!("cell {}: {}: aborted", self.count(), line.point));
            }
            Outcome::Done { .. } | Outcome::Aborted => {}
        }
        if self.bar.is_none() && has_ended && completes_a_part(self.ended, self.cells) {
            self.log(&self.status());
        }
    }

    fn died(&mut self, cell: &PlannedCell, reason: &str) {
        self.log(&format!("note: cell {} is run again: {reason}", cell.cell));
    }

    fn untraced(&mut self, cell: &PlannedCell, reason: &str) {
        self.log(&format!("note: cell {} is not in the trace: {reason}", cell.cell));
    }

    fn has_enough(&self) -> bool {
        self.stops_at_failure && self.has_failed
    }

    fn stopping(&mut self) {
        self.log("stopping: the running cell is aborted; repeat to end at once");
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

    /// Checks the number of lines. The last cell always has one.
    #[test]
    fn each_tenth_has_a_line() {
        let lines = |cells| {
            let ends: Vec<usize> =
                (0..=cells).filter(|ended| completes_a_part(*ended, cells)).collect();
            (ends.len(), ends.last().copied())
        };
        for cells in 1..=300 {
            assert_eq!(lines(cells), (cells.min(PARTS), Some(cells)));
        }
        assert_eq!(lines(0), (0, None));
        assert!(completes_a_part(14, 140) && !completes_a_part(15, 140));
    }

    #[test]
    fn remaining_time_follows_from_the_pace() {
        let seconds = Duration::from_secs;
        let mut pace = Pace::new(seconds(100));
        assert_eq!(pace.time_remaining(seconds(7)), seconds(100), "nothing is known yet");
        pace.ended(seconds(20));
        assert_eq!(pace.time_remaining(seconds(10)), seconds(40), "twice as fast as was thought");
        pace.ended(seconds(80));
        assert_eq!(pace.time_remaining(seconds(60)), Duration::ZERO);
    }
}
