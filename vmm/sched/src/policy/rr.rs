//! `rr`: round robin. Each vCPU in turn, for one slice, whatever it does with locks. The textbook
//! policy, and what a hypervisor does that knows nothing of its guests. Right as the blind
//! baseline: it shows what lock-holder preemption costs. Waiting: at most one slice per other vCPU.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue};
use crate::event::{Observation, VcpuIndex};
use base::units::{Nanos, SlotId};

/// Round robin; other policies use it between their own decisions.
#[derive(Debug)]
pub(super) struct Rr {
    queue: Queue,
    slice: Nanos,
    /// By vCPU: when it became ready. Valid only while it waits for a slot.
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

    /// Is any vCPU waiting?
    pub(super) fn is_contended(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The queue, for policies that serve it in another order.
    pub(super) fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Those that wait, in the order of their turns.
    pub(super) fn waiting(&self) -> impl Iterator<Item = VcpuIndex> {
        self.queue.iter()
    }

    /// The end of a turn that begins now.
    pub(super) fn turn(&self, view: &View<'_>) -> Nanos {
        view.now.after(self.slice)
    }

    /// Time left of its slice; zero at its end.
    pub(super) fn left(&self, vcpu: VcpuIndex, view: &View<'_>) -> Nanos {
        self.slice.since(view.ran(vcpu))
    }

    /// Notes that `vcpu` waits from now on, in a queue that the calling policy keeps.
    pub(super) fn waits(&mut self, vcpu: VcpuIndex, view: &View<'_>) {
        self.since[vcpu.ix()] = view.now;
    }

    /// When a waiting vCPU became ready.
    pub(super) fn since(&self, vcpu: VcpuIndex) -> Nanos {
        self.since[vcpu.ix()]
    }

    /// Has it waited for so long that no other may go ahead of it any more? The limit is one slice
    /// per vCPU of the schedule, more than a round takes on one slot.
    pub(super) fn is_overdue(&self, vcpu: VcpuIndex, view: &View<'_>) -> bool {
        let round = Nanos(self.slice.0.saturating_mul(self.since.len() as u64));
        view.now.since(self.since(vcpu)) >= round
    }

    /// The head of the queue.
    pub(super) fn first(&self) -> Option<VcpuIndex> {
        self.queue.first()
    }

    /// The head of the queue, if it is overdue: a policy that lets others go ahead serves it first.
    pub(super) fn overdue(&self, view: &View<'_>) -> Option<VcpuIndex> {
        self.queue.first().filter(|vcpu| self.is_overdue(*vcpu, view))
    }

    /// Removes and returns the head of the queue, if it is overdue.
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
