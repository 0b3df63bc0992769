//! The state of all vCPUs at one moment, for live displays.

use super::schedule::{Driver, now};
use base::units::{Nanos, VcpuId};
use sched::{
    accounting::Totals,
    core::State,
    event::{LockActivity, VcpuIndex},
};

/// One vCPU of a [`ScheduleSnapshot`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VcpuStatus {
    /// Index of its VM.
    pub vm: usize,
    /// The vCPU's number in that VM.
    pub id: VcpuId,
    /// Scheduling state of the vCPU; None: only the host's kernel knows it.
    pub state: Option<State>,
    /// What it is doing with locks; may be out of date if it is running.
    pub activity: LockActivity,
    /// Locks that it has taken, if its guest counts them.
    pub taken: Option<u64>,
}

/// A schedule at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleSnapshot {
    /// When, by the schedule's clock.
    pub at: Nanos,
    /// All vCPUs, by [`VcpuIndex`].
    pub vcpus: Vec<VcpuStatus>,
    /// The host CPU of each slot, and the vCPU that has it; empty if only the host's kernel knows it.
    pub slots: Vec<(usize, Option<VcpuIndex>)>,
    /// The sums so far.
    pub totals: Totals,
}

impl Driver {
    /// Takes a snapshot. Only states are copied under the core's lock; lock activities are read
    /// from the telemetry lines after that.
    pub fn snapshot(&self) -> ScheduleSnapshot {
        let mut states = Vec::with_capacity(self.vms.len());
        let mut slots: Vec<_> = self.cpus.iter().map(|cpu| (*cpu, None)).collect();
        let totals = {
            let inner = self.lock();
            states.extend(self.all().map(|vcpu| inner.core.state(vcpu)));
            for ((_, whose), has) in slots.iter_mut().zip(inner.core.slots()) {
                *whose = *has;
            }
            inner.core.accounting().totals()
        };
        let at = now();
        let seen = |(vcpu, state)| {
            let (vm, id) = self.id_of(vcpu);
            let lines = self.lines[vm].get();
            VcpuStatus {
                vm,
                id,
                state: Some(state),
                activity: lines.map(|lines| lines.activity(id, at)).unwrap_or_default(),
                taken: lines.and_then(|lines| lines.taken(id)),
            }
        };
        ScheduleSnapshot { at, vcpus: self.all().zip(states).map(seen).collect(), slots, totals }
    }

    fn all(&self) -> impl Iterator<Item = VcpuIndex> {
        (0..self.vms.len() as u32).map(VcpuIndex)
    }
}
