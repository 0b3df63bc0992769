//! The protocol between a run and its workers: one line of JSON per message.
//!
//! Child processes run the cells, so that a crash costs one cell and not the run, and so that a
//! worker in the emulated host is driven like a local one.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use study::{
    point::Point,
    spec::Method,
    store::record::{Load, Outcome},
};

/// A cell for a worker to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The cell's number.
    pub cell: u32,
    /// The point to run.
    pub point: Point,
    /// The text of the machine file, if the point is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Method of measurement.
    pub method: Method,
    /// CPUs of the worker's host; the first are the slots. None for all CPUs of the worker.
    pub cpus: Option<Vec<usize>>,
    /// Data to send with the result.
    #[serde(default)]
    pub extras: Extras,
}

/// Data requested from a cell in addition to its figures.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extras {
    /// A Perfetto trace.
    pub trace: bool,
    /// The decisions of the cell's schedule.
    pub recording: bool,
}

/// Bytes in a message, in base64.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        BASE64_STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}

/// A message from a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum WorkerMessage {
    /// A cell begins.
    Begun {
        /// The cell's number.
        cell: u32,
    },
    /// The cell has ended.
    Ended(Box<Ended>),
}

/// The result of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The cell's number.
    pub cell: u32,
    /// Start time, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// Total time, in seconds.
    pub took: f64,
    /// Load of the CPUs during the cell.
    pub load: Load,
    /// Figures, a failure, or an abort.
    pub outcome: Outcome,
    /// The Perfetto trace, or the reason why it is missing; only if the job asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Result<Bytes, String>>,
    /// The schedule's recording, if the job asked for it and the schedule is ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<Bytes>,
}
