//! What a cell does while it is run: figures for somebody who watches.
//!
//! They are taken by whoever waits for the cell's end, a few times a second; the vCPUs know nothing
//! of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{cell::RunSpec, machines::Machines};
use crate::{
    guest::payload::{SharedView, SlotFigures},
    sched::{LockActivity, VcpuIndex, accounting::Totals, core::State, driver::Snapshot},
    units::Nanos,
    vm::Running,
};

/// Somebody who watches cells while they are run.
pub trait LiveObserver: fmt::Debug {
    /// Is it time for another look?
    fn is_due(&self) -> bool;
    /// Takes what was seen.
    fn see(&self, view: View);
}

/// How far a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Its machines start.
    Boot,
    /// They contend, and nothing is counted yet.
    WarmUp,
    /// They are measured.
    Measured,
    /// They run, and nothing is counted: Linux guests after their benchmark, or between two parts
    /// of it.
    Running,
}

/// The machines of a cell at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// How far the cell is.
    pub phase: Phase,
    /// When it was seen, by the clock of [`LockActivity::Waiting`]'s `since`.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// All vCPUs, VM after VM.
    pub vcpus: Vec<VcpuView>,
    /// The slots of a schedule of ours; none under the host's.
    pub slots: Vec<SlotView>,
    /// The schedule's sums since the machines' start, if it is one of ours.
    pub totals: Option<Totals>,
}

/// One vCPU. Its counts are from its machine's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VcpuView {
    /// Number of its VM.
    pub vm: u32,
    /// Which it is there.
    pub vcpu: u32,
    /// Where it is; None: the host's scheduler alone knows.
    pub state: Option<State>,
    /// What it does with locks.
    pub locks: LockActivity,
    /// Operations, if its guest counts them where we can see it.
    pub operations: Option<u64>,
    /// Locks that it has taken, if its guest's kernel counts them for a schedule of ours.
    pub taken: Option<u64>,
    /// Returns from the guest.
    pub exits: u64,
    /// Halts for a lock: as the guest counts them if it does, or else `lock_spinning` calls.
    pub halts: u64,
    /// Kicks: as the guest counts them if it does, or else `unlock_kick` calls.
    pub kicks: u64,
}

impl VcpuView {
    /// What it is seen to get on by: its operations, or else the locks that it takes.
    pub fn done(&self) -> Option<u64> {
        self.operations.or(self.taken)
    }
}

/// One slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotView {
    /// The CPU, of the host that runs the cell.
    pub cpu: usize,
    /// Who has it: a place in [`View::vcpus`].
    pub vcpu: Option<u32>,
}

impl Machines {
    /// Shows the machines to whoever watches, if somebody does and it is time to.
    pub(super) fn show(&self, run: &RunSpec<'_>, phase: Phase) {
        let figures = |running: &Running| SharedView::new(running.memory()).slots(run.vcpus).ok();
        self.show_with(run, phase, figures);
    }

    /// The same of machines whose guests keep no figures of their own.
    pub(super) fn show_linux(&self, run: &RunSpec<'_>) {
        self.show_with(run, self.gathering.phase(), |_| None);
    }

    fn show_with(
        &self,
        run: &RunSpec<'_>,
        phase: Phase,
        figures: impl Fn(&Running) -> Option<Vec<SlotFigures>>,
    ) {
        let Some(onlooker) = run.onlooker.filter(|onlooker| onlooker.is_due()) else { return };
        let mut vcpus = Vec::new();
        for (vm, running) in (0..).zip(&self.running) {
            let figures = figures(running).unwrap_or_default();
            for (vcpu, counts) in (0..).zip(running.counts()) {
                let its = figures.get(vcpu as usize);
                vcpus.push(VcpuView {
                    vm,
                    vcpu,
                    state: None,
                    locks: LockActivity::Unknown,
                    operations: its.map(|its| its.operations),
                    taken: None,
                    exits: counts.exits,
                    halts: its.map_or(counts.lock_spinning, |its| its.halts),
                    kicks: its.map_or(counts.unlock_kick, |its| its.kicks),
                });
            }
        }
        onlooker.see(View::new(phase, vcpus, self.snapshot()));
    }
}

impl View {
    fn new(phase: Phase, mut vcpus: Vec<VcpuView>, schedule: Option<Snapshot>) -> Self {
        let Some(schedule) = schedule else {
            return Self { phase, at: Nanos::ZERO, vcpus, slots: Vec::new(), totals: None };
        };
        // Both are in order of VMs and of vCPUs in them.
        for (view, seen) in vcpus.iter_mut().zip(&schedule.vcpus) {
            (view.state, view.locks, view.taken) = (Some(seen.state), seen.activity, seen.taken);
        }
        let slot = |(cpu, vcpu): (usize, Option<VcpuIndex>)| SlotView {
            cpu,
            vcpu: vcpu.map(|vcpu| vcpu.0),
        };
        let slots = schedule.slots.into_iter().map(slot).collect();
        Self { phase, at: schedule.at, vcpus, slots, totals: Some(schedule.totals) }
    }
}
