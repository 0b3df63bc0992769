//! The lines of a store that only sweeps have.

use serde::{Deserialize, Serialize};

use crate::host::FileFacts;
use base::{
    guest_kernel::{Flavour, GuestKernel},
    text,
};

/// What is fixed for all tasks of a sweep when it is planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepLine {
    /// Identifies the sweep, so that a part of another sweep is recognized.
    pub id: String,
    /// The command line that planned the sweep.
    pub command: Vec<String>,
    /// The engine that starts the sweep's tasks: `local`, `slurm` or `manual`.
    pub engine: String,
    /// The user's own options for the engine.
    pub options: String,
    /// CPUs that a task needs.
    pub cpus: u32,
    /// Do the sweep's cells need /dev/kvm on the node?
    pub kvm: bool,
    /// The binary that all tasks must run.
    pub binary: FileFacts,
    /// The guest kernel 6.1 with ticketlocks, or a file that the user named, in the run's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<FileFacts>,
    /// That with mainline's spinlocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stock_kernel: Option<FileFacts>,
    /// The other guest kernels, in the run's directory; none in older stores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_kernels: Vec<PlannedKernel>,
    /// The units: each task runs one of them.
    pub units: Vec<Unit>,
}

impl SweepLine {
    /// All guest kernels.
    pub fn kernels(&self) -> impl Iterator<Item = (GuestKernel, Flavour, &FileFacts)> {
        let unnamed = [(Flavour::Ticket, &self.kernel), (Flavour::Stock, &self.stock_kernel)];
        let unnamed = unnamed
            .into_iter()
            .filter_map(|(flavour, file)| Some((GuestKernel::UNNAMED, flavour, file.as_ref()?)));
        let others = self.other_kernels.iter();
        unnamed.chain(others.map(|other| (other.kernel, other.flavour, &other.file)))
    }

    /// Adds the file of a guest kernel.
    pub fn set_kernel(&mut self, kernel: GuestKernel, flavour: Flavour, file: FileFacts) {
        match (kernel.is_unnamed(), flavour) {
            (true, Flavour::Ticket) => self.kernel = Some(file),
            (true, Flavour::Stock) => self.stock_kernel = Some(file),
            (false, _) => self.other_kernels.push(PlannedKernel { kernel, flavour, file }),
        }
    }
}

/// A guest kernel of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedKernel {
    /// The Linux that it is booted as.
    #[serde(with = "text")]
    pub kernel: GuestKernel,
    /// Whose spinlocks it has.
    pub flavour: Flavour,
    /// Its file.
    pub file: FileFacts,
}

/// The cells of a unit, which one task runs on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Number of the first cell.
    pub first: u32,
    /// Number of cells, which have consecutive numbers.
    pub cells: u32,
}

impl Unit {
    /// Does the unit contain cell number `cell`?
    pub const fn has(&self, cell: u32) -> bool {
        cell >= self.first && cell - self.first < self.cells
    }
}

/// The attempt at a unit that a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The sweep's [`SweepLine::id`].
    pub sweep: String,
    /// The unit's number.
    pub unit: u32,
    /// Number of the submission that the task belongs to, from 0.
    pub submission: u32,
    /// How often the engine had restarted the task before.
    pub restart: u32,
    /// The node's name.
    pub node: String,
    /// The task's name for the engine, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// The last line of a whole part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitLine {
    /// The unit's number.
    pub unit: u32,
    /// Number of the unit's cells.
    pub cells: u32,
    /// Checksum of all bytes before this line (FNV-1a, 64 bits).
    pub sum: u64,
}
