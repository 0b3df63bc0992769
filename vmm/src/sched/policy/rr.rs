//! `rr`: round robin. Everybody in turn, for one slice each, whatever it does with locks.
//! The textbook's; what a hypervisor does that knows nothing of its guests.
//! Right as the blind baseline: it shows what lock-holder preemption costs.
//! Waiting: at most a slice for each other vCPU.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue};
use crate::{
    sched::event::{Observation, VcpuIndex},
    units::{Nanos, SlotId},
};

/// Also what other policies do between their own decisions.
#[derive(Debug)]
pub(super) struct Rr {
    queue: Queue,
    slice: Nanos,
    /// By vCPU: when it became ready. Only of those that wait for a slot.
    since: Box<[Nanos]>,
}

impl Rr {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vcpus = setup.vms.len();
        Self {
            queue: Queue::with_room(vcpus),
            slice: setup.slice,
            since: vec![Nanos::ZERO; vcpus].into(),
        }
    }

    /// Does anybody wait?
    pub(super) fn is_contended(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The line, for policies that serve it in another order.
    pub(super) fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// The end of a turn that begins now.
    pub(super) fn turn(&self, view: &View<'_>) -> Nanos {
        view.now.after(self.slice)
    }

    /// What is left of the turn; zero at its end.
    pub(super) fn left(&self, vcpu: VcpuIndex, view: &View<'_>) -> Nanos {
        self.slice.since(view.ran(vcpu))
    }

    /// Notes that `vcpu` waits from now on, in a queue of the policy's own.
    pub(super) fn waits(&mut self, vcpu: VcpuIndex, view: &View<'_>) {
        self.since[vcpu.ix()] = view.now;
    }

    /// When a vCPU that waits became ready.
    pub(super) fn since(&self, vcpu: VcpuIndex) -> Nanos {
        self.since[vcpu.ix()]
    }

    /// Has a vCPU waited for so long that no other may go ahead of its turn any more: a slice for
    /// each vCPU of the schedule, more than a round takes on one slot?
    pub(super) fn is_overdue(&self, vcpu: VcpuIndex, view: &View<'_>) -> bool {
        let round = Nanos(self.slice.0.saturating_mul(self.since.len() as u64));
        view.now.since(self.since(vcpu)) >= round
    }

    /// The first of the line.
    pub(super) fn first(&self) -> Option<VcpuIndex> {
        self.queue.first()
    }

    /// The first of the line, if it is overdue: a policy that lets others go ahead serves it first.
    pub(super) fn overdue(&self, view: &View<'_>) -> Option<VcpuIndex> {
        self.queue.first().filter(|vcpu| self.is_overdue(*vcpu, view))
    }

    /// Takes it out of the line.
    pub(super) fn pop_overdue(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        self.overdue(view).and_then(|_| self.queue.pop())
    }
}

impl Policy for Rr {
    fn ready(&mut self, vcpu: VcpuIndex, _: Ready, view: &View<'_>) {
        self.waits(vcpu, view);
        self.queue.push(vcpu);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.queue.remove(vcpu);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        let vcpu = self.queue.pop()?;
        Some(Pick::new(vcpu, self.turn(view)))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        match self.left(vcpu, view) {
            Nanos::ZERO if self.is_contended() => Verdict::Preempt(Why::Slice),
            Nanos::ZERO => Verdict::Stay(self.turn(view)),
            left => Verdict::Stay(view.now.after(left)),
        }
    }
}
