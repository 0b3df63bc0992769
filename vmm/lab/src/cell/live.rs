//! Live figures of a cell while it runs, for an observer.
//!
//! The thread that waits for the cell's end samples them a few times per second; the vCPUs are not
//! involved.

use std::fmt;

use study::live::{CellView, Phase, SlotView, VcpuView};

use super::machines::Machines;
use crate::cell::RunSpec;
use base::units::{Nanos, VcpuCount};
use machine::{
    driver::ScheduleSnapshot,
    guest::payload::{SharedView, SlotFigures},
    vm::Running,
};
use sched::{LockActivity, VcpuIndex};

/// Receives live figures of cells.
pub trait LiveObserver: fmt::Debug {
    /// Is it time for another sample?
    fn is_due(&self) -> bool;
    /// Receives a sample.
    fn see(&self, view: CellView);
}

impl Machines {
    /// Sends a sample to the observer, if there is one and it is due.
    pub(super) fn show(&self, run: &RunSpec<'_>, phase: Phase) {
        let figures =
            |running: &Running, vcpus| SharedView::new(running.memory()).slots(vcpus).ok();
        self.show_with(run, phase, figures);
    }

    /// Sends a sample of machines whose guests keep no figures in shared memory.
    pub(super) fn show_linux(&self, run: &RunSpec<'_>) {
        self.show_with(run, self.gathering.phase(), |_, _| None);
    }

    fn show_with(
        &self,
        run: &RunSpec<'_>,
        phase: Phase,
        figures: impl Fn(&Running, VcpuCount) -> Option<Vec<SlotFigures>>,
    ) {
        let Some(onlooker) = run.onlooker.filter(|onlooker| onlooker.is_due()) else { return };
        let mut vcpus = Vec::new();
        for ((vm, running), vcpus_of_vm) in (0..).zip(&self.running).zip(run.point.sizes()) {
            let figures = figures(running, vcpus_of_vm).unwrap_or_default();
            for (vcpu, counts) in (0..).zip(running.counts()) {
                let slot = figures.get(vcpu as usize);
                vcpus.push(VcpuView {
                    vm,
                    vcpu,
                    state: None,
                    locks: LockActivity::Unknown,
                    operations: slot.map(|slot| slot.operations),
                    taken: None,
                    exits: counts.exits,
                    halts: slot.map_or(counts.lock_spinning, |slot| slot.halts),
                    kicks: slot.map_or(counts.unlock_kick, |slot| slot.kicks),
                });
            }
        }
        onlooker.see(view(phase, vcpus, self.snapshot()));
    }
}

/// The view of a cell whose vCPUs are these, with what our schedule knows of them.
fn view(phase: Phase, mut vcpus: Vec<VcpuView>, schedule: Option<ScheduleSnapshot>) -> CellView {
    let Some(schedule) = schedule else {
        return CellView { phase, at: Nanos::ZERO, vcpus, slots: Vec::new(), totals: None };
    };
    // Both are sorted by machine and vCPU.
    for (view, seen) in vcpus.iter_mut().zip(&schedule.vcpus) {
        (view.state, view.locks, view.taken) = (seen.state, seen.activity, seen.taken);
    }
    let slot =
        |(cpu, vcpu): (usize, Option<VcpuIndex>)| SlotView { cpu, vcpu: vcpu.map(|vcpu| vcpu.0) };
    let slots = schedule.slots.into_iter().map(slot).collect();
    CellView { phase, at: schedule.at, vcpus, slots, totals: Some(schedule.totals) }
}
