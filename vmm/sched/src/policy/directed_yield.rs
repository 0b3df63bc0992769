//! `directed-yield[:LOOKS]`: a vCPU that has spun LOOKS iterations on a lock gives its slot to the lock's
//! holder if the holder is preempted, else to the next in line, else to the vCPU that has waited longest for
//! a slot. Modelled on KVM's pause-loop exits and yield_to, with telemetry where KVM guesses. Suitable for
//! native locks on CPUs without a better remedy: it shortens waits but prevents none. Waiting time: slots are
//! given in order again when the first of the round has waited for one slice per vCPU, so each waits at most
//! two slices per vCPU of the schedule. A vCPU whose VM is in arrears ([`Rr::with_debts`]) has no choice: its
//! slot goes to the next vCPU of the round.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, rr::Rr};
use crate::{
    event::{LockActivity, LockId, Observation, VcpuIndex},
    log::TurnEnd,
};
use base::units::{Nanos, SlotId};

#[derive(Debug)]
pub(super) struct DirectedYield {
    rr: Rr,
    looks: u32,
}

impl DirectedYield {
    /// Spin iterations of a PV waiter before it halts.
    pub(super) const LOOKS: u32 = 2048;

    pub(super) fn new(setup: &Setup<'_>, looks: u32) -> Self {
        Self { rr: Rr::with_debts(setup), looks }
    }

    /// Returns the ready vCPU that `spinner` most needs to run.
    fn beneficiary(
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
        let of_lock = |vcpu: VcpuIndex, fits: &dyn Fn(&LockActivity, LockId) -> bool| {
            view.vm_of(vcpu) == vm && fits(view.last_seen(vcpu), lock)
        };
        let holds = |seen: &LockActivity, lock| seen.is_holder() && seen.lock() == Some(lock);
        let head = activity.head();
        let is_next = |seen: &LockActivity, lock| match *seen {
            LockActivity::Waiting { lock: wanted, ticket, .. } => {
                wanted == lock && head.map_or(seen.is_next(), |head| ticket.wrapping_sub(head) <= 2)
            }
            _ => false,
        };
        let queue = self.rr.queue();
        let needed = queue
            .take(|vcpu| of_lock(vcpu, &holds))
            .or_else(|| queue.take(|vcpu| of_lock(vcpu, &is_next)));
        needed.or_else(|| self.rr.take_next(view))
    }

    fn give(&mut self, spinner: VcpuIndex, look: &Observation, view: &View<'_>) -> bool {
        let Some(slot) = view.slot_of(spinner) else { return false };
        let next = self.beneficiary(spinner, &look.activity, view);
        next.is_some_and(|next| {
            self.rr.give(slot, next, self.rr.slice());
            true
        })
    }
}

impl Policy for DirectedYield {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.ready(vcpu, cause, view);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.rr.gone(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        self.rr.pick(slot, view)
    }

    fn stopped(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict {
        self.rr.stopped(vcpu, look, view)
    }

    fn turn_over(&mut self, vcpu: VcpuIndex, end: TurnEnd, ran: Nanos, view: &View<'_>) {
        self.rr.turn_over(vcpu, end, ran, view);
    }

    fn halted(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) {
        self.give(vcpu, look, view);
    }

    fn spun_out(
        &mut self,
        vcpu: VcpuIndex,
        look: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        self.give(vcpu, look, view).then_some(Verdict::Preempt(Why::Spun))
    }

    fn yields_to(
        &mut self,
        vcpu: VcpuIndex,
        to: VcpuIndex,
        look: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        self.rr.yields_to(vcpu, to, look, view)
    }

    fn spin_looks(&self) -> u32 {
        self.looks
    }
}
