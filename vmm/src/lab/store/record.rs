//! What a line of a store says. In words: `vmm/specs/README.md`, "What is kept".

use serde::{Deserialize, Serialize};

use super::super::{host::HostFacts, point::Point, sync_counters::WorkCounts, timings::Timings};
use crate::{
    machine::counters::{Counts, FaultCounts},
    sched::{accounting::Totals, policy::Hits},
};

/// Version of the form of all lines.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The first, and no other.
    Run(RunLine),
    /// Each time that the run was started or resumed, before its cells.
    Session(Box<SessionLine>),
    /// Each time that a cell has ended.
    Cell(Box<CellLine>),
}

/// What the run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// [`FORMAT`].
    pub format: u32,
    /// The spec's name.
    pub name: String,
    /// What its author wants to know; may be empty.
    pub question: String,
    /// The whole spec, so that the run can be resumed and repeated.
    pub spec: String,
    /// `--only`, which leaves out cells of it.
    pub only: Vec<String>,
    /// `--host`: `auto`, `direct` or `emulated`.
    pub host: String,
    /// Host CPUs that carry the vCPUs; their share of a job is what ratios are of.
    pub cpus: Vec<usize>,
    /// Cells that are run side by side.
    pub jobs: u32,
    /// Decides the order of the cells.
    pub seed: u64,
    /// How many cells the whole run has.
    pub cells: u32,
    /// When it began, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
}

/// One start of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionLine {
    /// When, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The command line.
    pub command: Vec<String>,
    /// The host as it was then.
    pub host: HostFacts,
}

/// One cell: a run of one point, on fresh machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellLine {
    /// Its number in the run, from 0; a cell has the same in each session.
    pub cell: u32,
    /// Which repetition of its point, from 0. Cells of a round are neighbours in time.
    pub round: u32,
    /// What ran.
    pub point: Point,
    /// When it began, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// How long it took in all, in seconds.
    pub took: f64,
    /// What else the CPUs did then.
    pub load: Load,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How busy the host was beside and with a cell.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Load average of the last minute, at the start.
    pub average: Option<f64>,
    /// Share of the CPUs' time that was not idle, while it ran.
    pub busy: Option<f64>,
    /// Share of the CPUs' time that another host took away meanwhile.
    pub steal: Option<f64>,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// With figures.
    Done {
        /// They.
        figures: Box<Figures>,
    },
    /// By a failure, which ends this cell only.
    Failed {
        /// In one line.
        error: String,
        /// The last events of each vCPU, if the watchdog ended it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        trace: String,
    },
    /// By the user, before its time: it is run again.
    Aborted,
}

/// What was measured.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How long was measured really.
    pub seconds: f64,
    /// Operations of each vCPU in that time.
    pub operations: Vec<u64>,
    /// Those that had to wait, if the lock counts them. In older stores, of PV locks of Linux guests
    /// what is `long_waits` now.
    pub slow: Option<u64>,
    /// Waits for any lock of a guest's kernel that used up the spin threshold.
    #[serde(default)]
    pub long_waits: Option<u64>,
    /// Halts that the guest counted.
    pub halts: u64,
    /// Kicks that the guest counted.
    pub kicks: u64,
    /// Failures of mutual exclusion; anything but zero is a bug.
    pub violations: u64,
    /// Tickets served out of order; anything but zero is a bug.
    pub disorder: u64,
    /// The VMM's own counts of the time measured; in older stores, from the machines' start.
    pub vmm: Counts,
    /// Of a schedule of ours.
    pub schedule: Option<ScheduleFigures>,
    /// What went wrong on purpose.
    pub faults: Option<FaultCounts>,
    /// What the system did beside its operations.
    pub work: Option<WorkCounts>,
    /// How long operations took, or how long a lock was waited for.
    pub latencies: Option<Timings>,
}

impl Figures {
    /// Operations a second, of all vCPUs.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.operations.iter().map(|of| *of as f64).sum::<f64>() / self.seconds
        } else {
            0.0
        }
    }
}

/// What a schedule did.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFigures {
    /// For how long the following was counted: while all machines were measured. None in older
    /// stores: for as long as their operations, and of Linux guests for their machines' whole lives.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Sums over that time.
    pub totals: Totals,
    /// The same of a policy that aims.
    pub hits: Option<Hits>,
    /// How late turns ended.
    pub lateness: Timings,
    /// From a grant to the thread's being about to enter the guest.
    pub handover: Timings,
    /// From a release in the guest to its kick in the VMM.
    pub release_to_kick: Timings,
    /// From a kick to the grant of a slot.
    pub kick_to_grant: Timings,
    /// From that grant to the guest's first instruction.
    pub grant_to_guest: Timings,
}
