//! `fair[:WEIGHT,...]`: runs the vCPU with the least CPU time divided by its VM's weight. A vCPU that wakes
//! from a sleep gets a bounded credit. After Linux's CFS (Molnar 2007), without its wakeup preemption.
//! Suitable for a host with VMs of different shares; as blind to locks as `rr`.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View};
use crate::{
    event::{Observation, VcpuIndex},
    log::SliceEnd,
};
use base::units::{Nanos, SlotId};

/// The weight at which CPU time is not scaled.
const DEFAULT_WEIGHT: u64 = 1024;

#[derive(Debug)]
pub(super) struct Fair {
    slice: Nanos,
    /// CPU time and index of each waiting vCPU, least time first. A waiting vCPU accumulates no time, so its
    /// entry stays valid.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    /// CPU time so far in nanoseconds, scaled by 1024 over the weight.
    runtime: Box<[u64]>,
    weights: Box<[u32]>,
    /// Highest CPU time of a vCPU when it was picked or started another slice. A vCPU that wakes up is at
    /// most one slice behind it.
    floor: u64,
}

impl Fair {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vcpus = setup.vms.len();
        Self {
            slice: setup.slice,
            waiting: BinaryHeap::with_capacity(vcpus),
            runtime: vec![0; vcpus].into(),
            weights: vec![DEFAULT_WEIGHT as u32; vcpus].into(),
            floor: 0,
        }
    }

    /// Returns the vCPU's scaled CPU time, including `ran` of its current time slice.
    fn runtime_with(&self, vcpu: VcpuIndex, ran: Nanos) -> u64 {
        let ix = vcpu.ix();
        let delta = u128::from(ran.0) * u128::from(DEFAULT_WEIGHT) / u128::from(self.weights[ix]);
        self.runtime[ix].saturating_add(delta.min(u128::from(u64::MAX)) as u64)
    }
}

impl Policy for Fair {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        let ix = vcpu.ix();
        self.weights[ix] = view.weight_of(vcpu).max(1);
        if !matches!(cause, Ready::Preempted | Ready::Yielded) {
            self.runtime[ix] = self.runtime[ix].max(self.floor.saturating_sub(self.slice.0));
        }
        self.waiting.push(Reverse((self.runtime[ix], vcpu.0)));
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.waiting.retain(|Reverse((_, entry))| *entry != vcpu.0);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        let Reverse((runtime, vcpu)) = self.waiting.pop()?;
        self.floor = self.floor.max(runtime);
        Some(Pick::new(VcpuIndex(vcpu), view.now.after(self.slice)))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        match self.slice.since(view.ran(vcpu)) {
            Nanos::ZERO if !self.waiting.is_empty() => Verdict::Preempt(Reason::Slice),
            Nanos::ZERO => {
                self.floor = self.floor.max(self.runtime_with(vcpu, view.ran(vcpu)));
                Verdict::Stay(view.now.after(self.slice))
            }
            left => Verdict::Stay(view.now.after(left)),
        }
    }

    fn slice_ended(&mut self, vcpu: VcpuIndex, _: SliceEnd, ran: Nanos, _: &View<'_>) {
        self.runtime[vcpu.ix()] = self.runtime_with(vcpu, ran);
    }
}
