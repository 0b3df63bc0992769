//! The status of a run at one moment, as its control socket sends it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{live::Live, point::Point};

/// Version of the status document.
pub const VERSION: u32 = 1;

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Cells are being run.
    Running,
    /// No further cell is begun; those under way are finished.
    Paused,
    /// The cells under way are being aborted; the run then ends.
    Stopping,
    /// The run is over.
    Ended,
}

/// Status of a run at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the document, [`VERSION`].
    pub version: u32,
    /// The experiment's name.
    pub name: String,
    /// The run's directory.
    pub dir: String,
    /// The run's state.
    pub state: RunState,
    /// Cells of the whole run, including former sessions; the sum of the four counts below.
    pub cells: u32,
    /// Cells with figures.
    pub done: u32,
    /// Cells that failed.
    pub failed: u32,
    /// Cells aborted in this session; they still have to be run.
    pub aborted: u32,
    /// Cells not yet begun or under way, except the aborted ones.
    pub left: u32,
    /// Time since this session began, in seconds.
    pub seconds: f64,
    /// Estimated time for the cells that are left, in seconds.
    pub eta: f64,
    /// Cells under way.
    pub at_work: Vec<AtWork>,
    /// The cells that ended last in this session, the latest first.
    pub last: VecDeque<Past>,
}

/// A cell under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtWork {
    /// Number in the run.
    pub cell: u32,
    /// Which repetition of its point, from 0.
    pub round: u32,
    /// The point being run.
    pub point: Point,
    /// Time since a worker got it, in seconds.
    pub seconds: f64,
    /// The worker's last live report.
    pub live: Option<Live>,
}

/// A cell that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Number in the run.
    pub cell: u32,
    /// Which repetition of its point, from 0.
    pub round: u32,
    /// The point that was run.
    pub point: Point,
    /// How long it took in total, in seconds.
    pub took: f64,
    /// How it ended.
    pub end: PastEnd,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PastEnd {
    /// With figures; operations per second.
    Done(f64),
    /// With this error.
    Failed(String),
    /// Aborted by the user.
    Aborted,
}
