//! Runs an experiment in worker processes: the interface to its caller, and the result.

mod estimate;
pub mod job;
pub mod job_lines;
pub mod only_job;
pub mod relay;
pub mod run_jobs;
mod run_loop;
mod worker_handle;

use std::{collections::HashSet, io, time::Duration};

use thiserror::Error;
use tokio::process::Command;

pub use estimate::EMULATED_HOST;
pub use run_loop::run;
pub use worker_handle::StartError;

use job::{Bytes, Extras};
use study::{
    point::{HostKernel, HostKind, Point},
    spec::{Experiment, PlannedCell},
    store::{StoreError, record::CellLine},
};

/// Errors that end a run.
#[derive(Debug, Error)]
pub enum RunError {
    /// A result cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A worker cannot be started.
    #[error(transparent)]
    Worker(#[from] StartError),
    /// A trace cannot be stored.
    #[error("cannot write the trace")]
    Trace(#[source] io::Error),
    /// A job cannot be serialized.
    #[error("cannot serialize a worker's job")]
    Job(#[from] serde_json::Error),
}

/// Starts the workers of a run.
pub trait WorkerPool {
    /// Returns the command that starts a worker for a host, with this kernel if it is emulated.
    fn worker(&self, host: HostKind, kernel: Option<HostKernel>) -> Command;

    /// Returns the CPUs for the cells of parallel worker `number`; None for all its CPUs.
    fn cpus(&self, host: HostKind, number: usize) -> Option<Vec<usize>>;

    /// Returns the number of parallel workers.
    fn jobs(&self) -> usize;

    /// Returns the data requested in addition to figures.
    fn extras(&self, cell: &PlannedCell) -> Extras;

    /// Stores a trace, before the store records that its cell is done.
    fn store_trace(&self, trace: Bytes) -> io::Result<()>;

    /// Stores a recording.
    fn store_recording(&self, _: Bytes) {}
}

/// Receives a run's progress.
pub trait Watcher {
    /// A cell begins.
    fn started(&mut self, cell: &PlannedCell, point: &Point);
    /// A cell has ended and is in the store.
    fn ended(&mut self, line: &CellLine);
    /// The cell's worker has died, for `reason`; the cell will be run again.
    fn died(&mut self, cell: &PlannedCell, reason: &str);
    /// A requested trace is missing, for this reason.
    fn untraced(&mut self, _: &PlannedCell, _: &str) {}
    /// Whether the run ends early. No further cell is then started, except retries.
    fn has_enough(&self) -> bool {
        false
    }
    /// The user ends the run; running cells are aborted.
    fn stopping(&mut self);
}

/// Result of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Cells with figures.
    pub done: u32,
    /// Cells that failed.
    pub failed: u32,
    /// Cells that have not been run, or were aborted.
    pub remaining: u32,
    /// Cells in which a lock violated mutual exclusion or its order, which is a bug.
    pub broken: u32,
    /// Whether the user ended the run early.
    pub stopped: bool,
}

/// Estimates the time for the cells that are not `finished`, in `jobs` workers.
pub fn estimate(experiment: &Experiment, finished: &HashSet<u32>, jobs: usize) -> Duration {
    let cells = experiment.cells();
    let remaining = cells.iter().filter(|cell| !finished.contains(&cell.cell));
    let points: Vec<&Point> = remaining.map(|cell| &experiment.points[cell.point]).collect();
    let cells: Duration =
        points.iter().map(|point| estimate::of_cell(point, &experiment.method)).sum();
    let boots = points.iter().any(|point| point.host == HostKind::Emulated);
    let boot = if boots { estimate::EMULATED_HOST } else { Duration::ZERO };
    cells.div_f64(jobs.max(1) as f64) + boot
}

/// Estimates the time for a cell.
pub fn estimate_cell(experiment: &Experiment, point: &Point) -> Duration {
    estimate::of_cell(point, &experiment.method)
}

#[cfg(test)]
mod tests;
