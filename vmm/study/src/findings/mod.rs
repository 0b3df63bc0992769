//! Evaluation of one or several runs: points with all their repetitions, and comparisons between
//! points.

pub mod compare;
pub mod diff;
mod directed;
mod hops;
mod host;
mod in_lock;
pub mod layout;
#[cfg(test)]
mod layout_tests;
pub mod league;
mod order;
#[cfg(test)]
mod place_tests;
pub mod point;
pub mod ranks;
pub mod read;
pub mod repetition;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub use crate::axis::{Axis, LOCK_AXES};
pub use compare::{Comparison, SeriesComparison};
pub use diff::Diff;
pub use directed::Directed;
pub use hops::{Moved, is_elsewhere};
pub use host::{Extremes, HostRates, VcpuTimeShares};
pub use in_lock::InLock;
pub use layout::Layout;
pub use league::League;
use order::PointOrder;
pub use point::{PointStudy, Timed};
pub use read::{Repeat, RunRecord, share_cells, without_repeats};
use repetition::{Hosts, MeasuredCell};

use super::{
    point::Point,
    spec,
    store::record::{CellLine, Outcome, RunLine, SessionLine},
};

/// A cell without figures.
#[derive(Debug, Clone, PartialEq)]
pub struct LostCell {
    /// Directory of its run.
    pub source: String,
    /// Number of the cell in that run.
    pub cell: u32,
    /// Index of the repetition of its point, from 0.
    pub round: u32,
    /// The point that was run.
    pub point: Point,
    /// The error; None if the user aborted the cell.
    pub error: Option<String>,
    /// The last events of each vCPU, if a watchdog ended the cell.
    pub trace: String,
}

/// A run without its cells.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFacts {
    /// Directory, as written by the user.
    pub source: String,
    /// The first line of its store.
    pub run: RunLine,
    /// Starts and resumes of the run.
    pub sessions: Vec<SessionLine>,
    /// Number of cells with figures.
    pub done: u32,
    /// Whether the store's last line is incomplete.
    pub torn: bool,
}

/// A study: the contents of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// The runs, in the order supplied.
    pub runs: Vec<RunFacts>,
    /// The points, in the order shown.
    pub points: Vec<PointStudy>,
    /// Comparisons of points with their baselines.
    pub comparisons: Vec<Comparison>,
    /// The comparisons, grouped into series.
    pub findings: Vec<SeriesComparison>,
    /// Cells without figures.
    pub lost: Vec<LostCell>,
    /// The axes along which the points differ.
    pub varying: Vec<Axis>,
    /// Placement of these axes in charts.
    pub layout: Layout,
    /// Cells before or after which the host's CPUs were in another place.
    pub moved: Option<Moved>,
    /// Seed of the bootstrap and of the permutations.
    pub seed: u64,
}

impl Study {
    /// Evaluates these runs together.
    pub fn new(records: &[RunRecord]) -> Self {
        let seed = records.first().map_or(0, |record| record.contents.run.seed);
        let spec = records.first().map_or("", |record| &record.contents.run.spec);
        let (mut points, lost) = points(records, spec);
        let varying = Axis::varying(points.iter().map(|study| &study.point));
        let refs: Vec<&Point> = points.iter().map(|study| &study.point).collect();
        let layout = Layout::new(&refs, &varying, &spec::charts(spec));
        group_by_facet(&mut points, &layout);
        let comparisons = compare::compare_all(&points, seed);
        Self {
            runs: records.iter().map(facts).collect(),
            findings: compare::findings(&points, &comparisons, &layout),
            moved: Moved::find(&points),
            varying,
            layout,
            points,
            comparisons,
            lost,
            seed,
        }
    }

    /// Returns the number of cells in all runs.
    pub fn cells(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.run.cells)).sum()
    }

    /// Returns the number of cells with figures.
    pub fn done(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.done)).sum()
    }

    /// Returns the violations of mutual exclusion, and the tickets served out of order.
    pub fn failures(&self) -> (f64, f64) {
        let sum = |pick: fn(&PointStudy) -> f64| self.points.iter().map(pick).sum();
        (sum(|point| point.violations), sum(|point| point.disorder))
    }
}

fn facts(record: &RunRecord) -> RunFacts {
    RunFacts {
        source: record.source.clone(),
        run: record.contents.run.clone(),
        sessions: record.contents.sessions.clone(),
        done: record.contents.tally().done,
        torn: record.contents.torn.is_some(),
    }
}

/// Error of a cell with impossible figures.
pub(crate) const IMPOSSIBLE: &str = "its figures are impossible";

fn lost(source: &str, cell: &CellLine) -> LostCell {
    let (error, trace) = match &cell.outcome {
        Outcome::Done { .. } => (Some(IMPOSSIBLE.to_owned()), String::new()),
        Outcome::Failed { error, trace } => (Some(error.clone()), trace.clone()),
        Outcome::Aborted => (None, String::new()),
    };
    LostCell {
        source: source.to_owned(),
        cell: cell.cell,
        round: cell.round,
        point: cell.point.clone(),
        error,
        trace,
    }
}

/// Groups the points of each chart, in the order in which the charts appear.
fn group_by_facet(points: &mut [PointStudy], layout: &Layout) {
    let mut places: HashMap<Vec<String>, usize> = HashMap::new();
    points.sort_by_cached_key(|study| {
        let next = places.len();
        *places.entry(layout.facet(&study.point)).or_insert(next)
    });
}

fn points(records: &[RunRecord], spec: &str) -> (Vec<PointStudy>, Vec<LostCell>) {
    let hosts = Hosts::new(records);
    let mut by_point: Vec<(&Point, Vec<MeasuredCell<'_>>)> = Vec::new();
    let mut lost_cells = Vec::new();
    for (run, record) in records.iter().enumerate() {
        for cell in record.contents.last_lines().into_values() {
            let ix = by_point.iter().position(|(point, _)| point.is_same(&cell.point));
            let ix = ix.unwrap_or_else(|| {
                by_point.push((&cell.point, Vec::new()));
                by_point.len() - 1
            });
            match cell.figures() {
                Some(figures) => {
                    let place = hosts.place(run, cell);
                    by_point[ix].1.push(MeasuredCell { run, place, line: cell, figures });
                }
                None => lost_cells.push(lost(&record.source, cell)),
            }
        }
    }
    let study =
        |(point, cells): (&Point, Vec<MeasuredCell<'_>>)| PointStudy::new(point.clone(), &cells);
    let mut points: Vec<PointStudy> = by_point.into_iter().map(study).collect();
    let order = PointOrder::from_spec(spec);
    points.sort_by(|a, b| order.compare(&a.point, &b.point));
    (points, lost_cells)
}
