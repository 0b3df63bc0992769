//! What a run says to its workers and they to it: a line of JSON each.
//!
//! Cells are run by child processes, so that what kills one costs a cell and no run, and so that a
//! child in the emulated host is spoken to like one here.

use serde::{Deserialize, Serialize};

use super::super::{
    live::View,
    point::Point,
    spec::Method,
    store::record::{Load, Outcome},
};

/// A cell to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its number.
    pub cell: u32,
    /// What to run.
    pub point: Point,
    /// How to measure it.
    pub method: Method,
    /// CPUs of the worker's host, of which the first are the slots; None: all it may use.
    pub cpus: Option<Vec<usize>>,
    /// Say what it does meanwhile.
    #[serde(default)]
    pub live: bool,
    /// Keep everything that happens, and draw it.
    #[serde(default)]
    pub trace: bool,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum WorkerMessage {
    /// A cell is run from now on.
    Begun {
        /// Which.
        cell: u32,
    },
    /// It has ended.
    Ended(Box<Ended>),
    /// What a cell does now; only if the job asked for it.
    Live(Box<Live>),
}

/// A cell at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Which.
    pub cell: u32,
    /// Since it began, in seconds.
    pub seconds: f64,
    /// What was seen.
    #[serde(flatten)]
    pub view: View,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Which.
    pub cell: u32,
    /// When it began, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// How long it took in all, in seconds.
    pub took: f64,
    /// What else the CPUs did.
    pub load: Load,
    /// Its end.
    pub outcome: Outcome,
    /// What happened in it, drawn, in base64, or why that is not there; if the job asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Result<String, String>>,
}
