//! `directed-yield[:SPINS]`: a vCPU that has spun SPINS iterations on a lock gives its slot to the lock's
//! holder if the holder is preempted, else to the next in line, else to the vCPU that has waited longest for
//! a slot. Modelled on KVM's pause-loop exits and yield_to, with telemetry where KVM guesses. Suitable for
//! native locks: it shortens waits but prevents none. Waiting time: slots are given round robin again when the
//! first of the round has waited for one slice per vCPU, so each waits at most two slices per vCPU of the
//! schedule. A vCPU whose VM is in arrears ([`Rr::with_debts`]) has no choice: its slot goes to the next vCPU
//! of the round.

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View, rr::Rr};
use crate::{
    event::{LockActivity, LockId, Observation, VcpuIndex},
    log::SliceEnd,
};
use base::units::{Nanos, SlotId};

#[derive(Debug)]
pub(super) struct DirectedYield {
    rr: Rr,
    spin_limit: u32,
}

impl DirectedYield {
    /// Default: the spin threshold of a PV waiter.
    pub(super) const SPINS: u32 = 2048;

    pub(super) fn new(setup: &Setup<'_>, spin_limit: u32) -> Self {
        Self { rr: Rr::with_debts(setup), spin_limit }
    }

    /// Dequeues the vCPU that `spinner` most needs to run, or an overdue vCPU.
    fn yield_target(
        &mut self,
        spinner: VcpuIndex,
        activity: &LockActivity,
        view: &View<'_>,
    ) -> Option<VcpuIndex> {
        if let Some(overdue) = self.rr.pop_overdue(view) {
            return Some(overdue);
        }
        let &LockActivity::Waiting { lock, .. } = activity else {
            return self.rr.take_next(view);
        };
        if self.rr.is_in_arrears(spinner) {
            return self.rr.take_next(view);
        }
        let vm = view.vm_of(spinner);
        let matches = |vcpu: VcpuIndex, fits: &dyn Fn(&LockActivity, LockId) -> bool| {
            view.vm_of(vcpu) == vm && fits(view.activity(vcpu), lock)
        };
        let holds = |peer: &LockActivity, lock| peer.is_holder() && peer.lock() == Some(lock);
        let head = activity.head();
        let is_next = |peer: &LockActivity, lock| match *peer {
            LockActivity::Waiting { lock: at, ticket, .. } => {
                at == lock && head.map_or(peer.is_next(), |head| ticket.wrapping_sub(head) <= 2)
            }
            _ => false,
        };
        let queue = self.rr.queue();
        let target = queue
            .take(|vcpu| matches(vcpu, &holds))
            .or_else(|| queue.take(|vcpu| matches(vcpu, &is_next)));
        target.or_else(|| self.rr.take_next(view))
    }

    fn yield_slot(&mut self, spinner: VcpuIndex, obs: &Observation, view: &View<'_>) -> bool {
        let Some(slot) = view.slot_of(spinner) else { return false };
        let next = self.yield_target(spinner, &obs.activity, view);
        next.is_some_and(|next| {
            self.rr.assign(slot, next, self.rr.slice());
            true
        })
    }
}

impl Policy for DirectedYield {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.ready(vcpu, cause, view);
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.rr.exited(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        self.rr.pick(slot, view)
    }

    fn stopped(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict {
        self.rr.stopped(vcpu, obs, view)
    }

    fn slice_ended(&mut self, vcpu: VcpuIndex, end: SliceEnd, ran: Nanos, view: &View<'_>) {
        self.rr.slice_ended(vcpu, end, ran, view);
    }

    fn halted(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) {
        self.yield_slot(vcpu, obs, view);
    }

    fn spun_out(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Option<Verdict> {
        self.yield_slot(vcpu, obs, view).then_some(Verdict::Preempt(Reason::Spun))
    }

    fn yields_to(
        &mut self,
        vcpu: VcpuIndex,
        to: VcpuIndex,
        obs: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        self.rr.yields_to(vcpu, to, obs, view)
    }

    fn spin_limit(&self) -> u32 {
        self.spin_limit
    }
}
