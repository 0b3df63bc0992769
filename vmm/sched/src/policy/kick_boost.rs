//! `kick-boost[:later]`: a kicked vCPU runs next, on its kicker's CPU. The kicker makes way for it
//! at once unless it holds or awaits another lock: then it keeps its slot, and the kicked vCPU gets
//! the next free slot. With `later`, the kicked vCPU waits until the kicker halts or yields. After
//! KVM's boost of kicked vCPUs, published as +6/+70/+74 % at 1/2/3 VMs. Suitable for PV locks: the
//! lock is handed to a vCPU that runs, on a warm CPU. Waiting time: boosts stop when the first of
//! the round has waited for one slice per vCPU, so each waits at most two slices per vCPU of the
//! schedule. No kick boosts a vCPU whose VM is in arrears ([`Rr::with_debts`]).

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue, rr::Rr};
use crate::{
    event::{LockActivity, Observation, VcpuIndex},
    log::TurnEnd,
};
use base::units::{Nanos, SlotId};

#[derive(Debug)]
pub(super) struct KickBoost {
    rr: Rr,
    later: bool,
    boosted: Queue,
    /// By vCPU: the slot of its kicker.
    beside: Box<[Option<SlotId>]>,
}

impl KickBoost {
    pub(super) fn new(setup: &Setup<'_>, later: bool) -> Self {
        let vcpus = setup.vms.len();
        Self {
            rr: Rr::with_debts(setup),
            later,
            boosted: Queue::with_room(vcpus),
            beside: vec![None; vcpus].into(),
        }
    }
}

impl Policy for KickBoost {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.waits(vcpu, view);
        match cause {
            Ready::Kicked(by) if !self.rr.is_in_arrears(vcpu) => {
                self.beside[vcpu.ix()] = by.and_then(|kicker| view.slot_of(kicker));
                self.boosted.push(vcpu);
            }
            _ => self.rr.join(vcpu),
        }
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.boosted.remove(vcpu);
        self.rr.gone(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let beside = &self.beside;
        let boosted_since = self.boosted.first().map(|vcpu| self.rr.since(vcpu));
        let is_rounds = self
            .rr
            .overdue(view)
            .is_some_and(|first| boosted_since.is_none_or(|since| self.rr.since(first) <= since));
        let overdue = is_rounds.then(|| self.rr.queue().pop()).flatten();
        let ahead = overdue
            .or_else(|| self.boosted.take(|vcpu| beside[vcpu.ix()] == Some(slot)))
            .or_else(|| self.boosted.pop());
        match ahead {
            Some(vcpu) => Some(self.rr.begin(vcpu, self.rr.slice(), view)),
            None => self.rr.pick(slot, view),
        }
    }

    fn stopped(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict {
        let over = self.rr.left(vcpu, view) == Nanos::ZERO;
        if over && !self.boosted.is_empty() {
            Verdict::Preempt(Why::Slice)
        } else {
            self.rr.stopped(vcpu, look, view)
        }
    }

    fn turn_over(&mut self, vcpu: VcpuIndex, end: TurnEnd, ran: Nanos, view: &View<'_>) {
        self.rr.turn_over(vcpu, end, ran, view);
    }

    fn makes_way(
        &mut self,
        _: VcpuIndex,
        activity: &LockActivity,
        view: &View<'_>,
    ) -> Option<Verdict> {
        let may = !self.later && view.free_slot().is_none() && !activity.is_involved();
        may.then_some(Verdict::Preempt(Why::MadeWay))
    }
}
