//! `fair[:WEIGHT,...]`: whoever has had least, by its machine's weight, runs next; who comes back
//! from a sleep gets a bounded credit. After Linux's CFS (Molnar 2007), without its wake-up preemption.
//! Right for a host with VMs of different shares; as blind to locks as `rr`.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why};
use crate::{
    sched::{
        event::{Observation, VcpuIndex},
        log::TurnEnd,
    },
    units::{Nanos, SlotId},
};

/// The weight that makes time count as it is.
const USUAL_WEIGHT: u64 = 1024;

#[derive(Debug)]
pub(super) struct Fair {
    slice: Nanos,
    waiting: Box<[bool]>,
    /// Time had, divided by weight.
    had: Box<[u64]>,
    weights: Box<[u32]>,
    /// What the one picked last had: nobody is further behind than a slice.
    floor: u64,
}

impl Fair {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vcpus = setup.vms.len();
        Self {
            slice: setup.slice,
            waiting: vec![false; vcpus].into(),
            had: vec![0; vcpus].into(),
            weights: vec![USUAL_WEIGHT as u32; vcpus].into(),
            floor: 0,
        }
    }

    fn next(&self) -> Option<usize> {
        (0..self.had.len()).filter(|ix| self.waiting[*ix]).min_by_key(|ix| self.had[*ix])
    }
}

impl Policy for Fair {
    fn ready(&mut self, vcpu: VcpuIndex, why: Ready, view: &View<'_>) {
        let ix = vcpu.ix();
        self.waiting[ix] = true;
        self.weights[ix] = view.weight_of(vcpu).max(1);
        if !matches!(why, Ready::Preempted | Ready::Yielded) {
            self.had[ix] = self.had[ix].max(self.floor.saturating_sub(self.slice.0));
        }
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.waiting[vcpu.ix()] = false;
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        let ix = self.next()?;
        self.waiting[ix] = false;
        self.floor = self.floor.max(self.had[ix]);
        Some(Pick::new(VcpuIndex(ix as u32), view.now.after(self.slice)))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        match self.slice.since(view.ran(vcpu)) {
            Nanos::ZERO if self.next().is_some() => Verdict::Preempt(Why::Slice),
            Nanos::ZERO => Verdict::Stay(view.now.after(self.slice)),
            left => Verdict::Stay(view.now.after(left)),
        }
    }

    fn turn_over(&mut self, vcpu: VcpuIndex, _: TurnEnd, ran: Nanos) {
        let ix = vcpu.ix();
        let had = u128::from(ran.0) * u128::from(USUAL_WEIGHT) / u128::from(self.weights[ix]);
        self.had[ix] = self.had[ix].saturating_add(had.min(u128::from(u64::MAX)) as u64);
    }
}
