//! What the lines of one or more runs say: points, each with all its repetitions, and what comes of
//! comparing them.

pub mod axis;
pub mod compare;
pub mod diff;
pub mod point;
pub mod read;
#[cfg(test)]
pub mod tests;

use std::collections::BTreeMap;

pub use axis::Axis;
use axis::Order;
pub use compare::{Comparison, Finding};
pub use diff::Diff;
pub use point::{PointStudy, Timed};
pub use read::RunRecord;

use super::{
    point::Point,
    store::record::{CellLine, Figures, Outcome, RunLine, SessionLine},
};

/// A cell without figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Lost {
    /// Directory of its run.
    pub source: String,
    /// Its number there.
    pub cell: u32,
    /// Which repetition.
    pub round: u32,
    /// What ran.
    pub point: Point,
    /// Why; None: the user ended it.
    pub error: Option<String>,
    /// The last events of each vCPU, if a watchdog ended it.
    pub trace: String,
}

/// A run beside its cells.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFacts {
    /// Its directory, as the user wrote it.
    pub source: String,
    /// What it is.
    pub run: RunLine,
    /// Each start of it.
    pub sessions: Vec<SessionLine>,
    /// Cells that have figures.
    pub done: u32,
    /// The store ends in the middle of a line.
    pub torn: bool,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// The runs, in the order in which they were given.
    pub runs: Vec<RunFacts>,
    /// The points, in the order in which they are shown.
    pub points: Vec<PointStudy>,
    /// Points against their baselines.
    pub comparisons: Vec<Comparison>,
    /// The comparisons, series by series.
    pub findings: Vec<Finding>,
    /// Cells without figures.
    pub lost: Vec<Lost>,
    /// What the points differ in.
    pub varying: Vec<Axis>,
    /// Seed of the bootstrap and of the permutations.
    pub seed: u64,
}

impl Study {
    /// Of these runs.
    pub fn new(records: &[RunRecord]) -> Self {
        let seed = records.first().map_or(0, |record| record.contents.run.seed);
        let (points, lost) = points(records);
        let comparisons = compare::all(&points, seed);
        Self {
            runs: records.iter().map(facts).collect(),
            findings: compare::findings(&points, &comparisons),
            varying: Axis::varying(points.iter().map(|study| &study.point)),
            points,
            comparisons,
            lost,
            seed,
        }
    }

    /// Cells that all runs have together.
    pub fn cells(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.run.cells)).sum()
    }

    /// Those of them with figures.
    pub fn done(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.done)).sum()
    }

    /// What decides the overcommit ratio along a series: vCPUs, or else VMs, or else slots.
    pub fn ratio_axis(&self) -> Axis {
        let axes = [Axis::Vcpus, Axis::Vms, Axis::Slots];
        axes.into_iter().find(|axis| self.varying.contains(axis)).unwrap_or(Axis::Vcpus)
    }

    /// Failures of mutual exclusion, and tickets out of order.
    pub fn broken(&self) -> (f64, f64) {
        let sum = |of: fn(&PointStudy) -> f64| self.points.iter().map(of).sum();
        (sum(|point| point.violations), sum(|point| point.disorder))
    }
}

fn facts(record: &RunRecord) -> RunFacts {
    let done = last_of_each(record).values().filter(|cell| figures(cell).is_some()).count();
    RunFacts {
        source: record.source.clone(),
        run: record.contents.run.clone(),
        sessions: record.contents.sessions.clone(),
        done: u32::try_from(done).unwrap_or(u32::MAX),
        torn: record.contents.torn.is_some(),
    }
}

/// A cell that failed or was ended may have been run again: its last line counts.
fn last_of_each(record: &RunRecord) -> BTreeMap<u32, &CellLine> {
    record.contents.cells.iter().map(|cell| (cell.cell, cell)).collect()
}

/// None if there are none, or if they make no sense.
fn figures(cell: &CellLine) -> Option<&Figures> {
    match &cell.outcome {
        Outcome::Done { figures } if figures.rate().is_finite() => Some(figures),
        _ => None,
    }
}

fn lost(source: &str, cell: &CellLine) -> Lost {
    let (error, trace) = match &cell.outcome {
        Outcome::Done { .. } => (Some("its figures make no sense".to_owned()), String::new()),
        Outcome::Failed { error, trace } => (Some(error.clone()), trace.clone()),
        Outcome::Aborted => (None, String::new()),
    };
    Lost {
        source: source.to_owned(),
        cell: cell.cell,
        round: cell.round,
        point: cell.point.clone(),
        error,
        trace,
    }
}

type Cells<'a> = Vec<(usize, &'a CellLine, &'a Figures)>;

fn points(records: &[RunRecord]) -> (Vec<PointStudy>, Vec<Lost>) {
    let mut found: Vec<(&Point, Cells<'_>)> = Vec::new();
    let mut without = Vec::new();
    for (run, record) in records.iter().enumerate() {
        for cell in last_of_each(record).into_values() {
            let at = found.iter().position(|(point, _)| point.is_like(&cell.point));
            let at = at.unwrap_or_else(|| {
                found.push((&cell.point, Vec::new()));
                found.len() - 1
            });
            match figures(cell) {
                Some(figures) => found[at].1.push((run, cell, figures)),
                None => without.push(lost(&record.source, cell)),
            }
        }
    }
    let study = |(point, cells): (&Point, Cells<'_>)| PointStudy::new(point.clone(), &cells);
    let mut points: Vec<PointStudy> = found.into_iter().map(study).collect();
    let order = Order::of(records.first().map_or("", |record| &record.contents.run.spec));
    points.sort_by(|a, b| order.compare(&a.point, &b.point));
    (points, without)
}
