//! Live figures of a cell while it runs, as a worker sends them to its run and `pvticket top` shows
//! them.

use base::units::Nanos;
use sched::{LockActivity, accounting::Totals, core::State};
use serde::{Deserialize, Serialize};

/// The phase of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The machines boot.
    Boot,
    /// The vCPUs contend, before the window.
    WarmUp,
    /// The machines are in their window.
    Measured,
    /// The machines run outside their window: Linux guests after their benchmark, or between two
    /// parts of it.
    Running,
}

/// The machines of a cell at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellView {
    /// The phase of the cell.
    pub phase: Phase,
    /// When the sample was taken, by the clock of [`LockActivity::Waiting`]'s `since`.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// All vCPUs, machine by machine.
    pub vcpus: Vec<VcpuView>,
    /// The slots of a pvticket schedule; empty under the host's.
    pub slots: Vec<SlotView>,
    /// The schedule's sums since the machines' start, if it is ours.
    pub totals: Option<Totals>,
}

/// One vCPU. Its counts begin at its machine's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VcpuView {
    /// Number of its machine.
    pub vm: u32,
    /// Number within the machine.
    pub vcpu: u32,
    /// Scheduling state; None: only the host's scheduler knows it.
    pub state: Option<State>,
    /// Lock activity, from telemetry.
    pub locks: LockActivity,
    /// Operations, if its guest counts them in shared memory.
    pub operations: Option<u64>,
    /// Locks that it has taken, if its guest's kernel publishes the count.
    pub taken: Option<u64>,
    /// Exits to the VMM.
    pub exits: u64,
    /// Halts for a lock, as the guest counts them, or else `lock_spinning` calls.
    pub halts: u64,
    /// Kicks, as the guest counts them, or else `unlock_kick` calls.
    pub kicks: u64,
}

impl VcpuView {
    /// Progress: operations, or else locks taken.
    pub fn done(&self) -> Option<u64> {
        self.operations.or(self.taken)
    }
}

/// The state of a slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotView {
    /// CPU of the slot, on the host that runs the cell.
    pub cpu: usize,
    /// The vCPU that has it: an index into [`CellView::vcpus`].
    pub vcpu: Option<u32>,
}

/// The state of a running cell at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// The cell's number.
    pub cell: u32,
    /// Time since it began, in seconds.
    pub seconds: f64,
    /// What its machines do.
    #[serde(flatten)]
    pub view: CellView,
}
