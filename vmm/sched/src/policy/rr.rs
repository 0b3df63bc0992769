//! `rr`: round robin. Each vCPU in turn, for one slice, whatever it does with locks. The textbook
//! policy, and what a hypervisor does that knows nothing of its guests. Right as the blind
//! baseline: it shows what lock-holder preemption costs. A vCPU that gives its turn to another one
//! ([`Event::YieldsTo`](crate::Event::YieldsTo)) gives it what is left of its slice, so that no third one waits longer,
//! and no VM gains by it; both are at the end of the round then. Waiting: at most one slice per other vCPU.

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
    /// By slot: the vCPU that gets it next, and for how long.
    next: Box<[Option<(VcpuIndex, Nanos)>]>,
    /// By vCPU: the length of its turn, if that was given to it.
    given: Box<[Option<Nanos>]>,
}

impl Rr {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vcpus = setup.vms.len();
        Self {
            queue: Queue::with_room(vcpus),
            slice: setup.slice,
            since: vec![Nanos::ZERO; vcpus].into(),
            next: vec![None; setup.slots].into(),
            given: vec![None; vcpus].into(),
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
        self.given[vcpu.ix()].unwrap_or(self.slice).since(view.ran(vcpu))
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

    /// `next`, which is in no queue, gets `slot` for this long: the turn there ends in this step.
    pub(super) fn give(&mut self, slot: SlotId, next: VcpuIndex, length: Nanos) {
        // At most one vCPU is set aside per slot; it is picked in the same step.
        if let Some((other, _)) = self.next[slot.0 as usize].replace((next, length)) {
            self.queue.push_front(other);
        }
    }

    /// A turn of the usual length.
    pub(super) fn slice(&self) -> Nanos {
        self.slice
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
        let is_of = |next: &Option<(VcpuIndex, Nanos)>| next.is_some_and(|(next, _)| next == vcpu);
        self.next.iter_mut().filter(|next| is_of(next)).for_each(|next| *next = None);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        if let Some((vcpu, length)) = self.next[slot.0 as usize].take() {
            self.given[vcpu.ix()] = Some(length);
            return Some(Pick::new(vcpu, view.now.after(length)));
        }
        let vcpu = self.queue.pop()?;
        self.given[vcpu.ix()] = None;
        Some(Pick::new(vcpu, self.turn(view)))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        match self.left(vcpu, view) {
            Nanos::ZERO if self.is_contended() => Verdict::Preempt(Why::Slice),
            Nanos::ZERO => Verdict::Stay(self.turn(view)),
            left => Verdict::Stay(view.now.after(left)),
        }
    }

    fn yields_to(
        &mut self,
        vcpu: VcpuIndex,
        to: VcpuIndex,
        _: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        let (slot, left) = (view.slot_of(vcpu)?, self.left(vcpu, view));
        if left == Nanos::ZERO {
            return None;
        }
        let next = self.queue.take(|waiting| waiting == to)?;
        self.give(slot, next, left);
        Some(Verdict::Preempt(Why::Spun))
    }
}
