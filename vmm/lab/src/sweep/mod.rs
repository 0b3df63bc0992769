//! Sweeps: the units of a run as tasks of their own, on this host or on the nodes of a cluster.
//!
//! An [`Engine`] only submits, watches and cancels. Whether a unit is done is decided by the parts that
//! tasks write ([`study::store::sweep`]), not by what an engine says.

pub mod dir;
pub mod local;
pub mod progress;
pub mod slurm;
pub mod units;

use std::{collections::BTreeMap, fmt, io, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use dir::DirError;

/// What starts the tasks of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// Child processes on this host.
    Local,
    /// A batch array of Slurm.
    Slurm,
    /// No engine: pvticket prepares the directory, and the user starts `pvticket task`.
    Manual,
}

impl EngineKind {
    /// All engines.
    pub const ALL: [Self; 3] = [Self::Local, Self::Slurm, Self::Manual];

    /// The engine's name in options and stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Slurm => "slurm",
            Self::Manual => "manual",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("unknown engine '{name}': local, slurm, manual"))
    }
}

/// A set of units that are submitted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The submission's number in the sweep, from 0.
    pub number: u32,
    /// The engine's name.
    pub engine: String,
    /// The user's options for the engine.
    pub options: String,
    /// The name under which the engine knows the submission; unique on the cluster.
    pub name: String,
    /// Numbers of the units.
    pub units: Vec<u32>,
    /// When the units were submitted, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The engine's identifier of the job, once it is known. Only shown to users: the process that
    /// submits may die before it stores the identifier, so the submission is found by its name.
    pub job: Option<String>,
}

/// What an engine says about a unit that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// The unit waits, for this reason in the engine's words.
    Waiting(String),
    /// The unit waits and will never start, for this reason in the engine's words.
    Stuck(String),
    /// The unit runs.
    Running,
}

/// How a sweep is ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// Drop the waiting units, and ask the running ones to end in order.
    Ask,
    /// End all units.
    Kill,
}

/// Why a request to an engine failed.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The engine's command is not installed.
    #[error("there is no {0} here: is this a machine from which jobs can be submitted?")]
    Absent(&'static str),
    /// The engine's command cannot be started.
    #[error("cannot run {command}: {error}")]
    Start {
        /// The command.
        command: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The engine's command failed.
    #[error("{command} failed ({status}): {said}")]
    Failed {
        /// The command.
        command: &'static str,
        /// The command's exit status in words.
        status: String,
        /// What it printed, in one line.
        said: String,
    },
    /// The engine's command did not end in time.
    #[error(
        "{command} has not answered for {seconds} s: is the controller up? (PVTICKET_SLURM_PATIENCE \
         sets how long it may take)"
    )]
    Silent {
        /// The command.
        command: &'static str,
        /// How long pvticket waited for the command.
        seconds: u64,
    },
    /// The engine's command printed something unexpected.
    #[error("{command} printed '{said}' where {expected} was expected")]
    Unclear {
        /// The command.
        command: &'static str,
        /// What it printed, in one line.
        said: String,
        /// What it should have printed.
        expected: &'static str,
    },
    /// A file of the sweep cannot be written or read.
    #[error(transparent)]
    Dir(#[from] DirError),
}

/// Starts the tasks of a sweep.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Submits units, whose directory is prepared; returns the engine's identifier of the job.
    fn submit(&self, submission: &Submission) -> Result<Option<String>, EngineError>;

    /// The units of these submissions that have not ended, as far as the engine knows.
    fn watch(&self, submissions: &[Submission]) -> Result<BTreeMap<u32, Activity>, EngineError>;

    /// Ends these submissions.
    fn cancel(&self, submissions: &[Submission], how: Cancel) -> Result<(), EngineError>;
}
