//! `rr`: round robin. Each vCPU in turn, for one slice, whatever it does with locks. The textbook
//! policy, and what a hypervisor does that knows nothing of its guests. Right as the blind
//! baseline: it shows what lock-holder preemption costs. A vCPU that gives its turn to another one
//! ([`Event::YieldsTo`](crate::Event::YieldsTo)) gives it what is left of its slice, so that no third one waits longer,
//! and no VM gains by it; both are at the end of the round then. Waiting: at most one slice per other vCPU.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, debt::Debts, queue::Queue};
use crate::{
    event::{Observation, VcpuIndex},
    log::TurnEnd,
};
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
    /// By vCPU: the length of its turn.
    lengths: Box<[Nanos]>,
    /// For a policy that listens to its guests.
    debts: Option<Debts>,
}

impl Rr {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vcpus = setup.vms.len();
        Self {
            queue: Queue::with_room(vcpus),
            slice: setup.slice,
            since: vec![Nanos::ZERO; vcpus].into(),
            next: vec![None; setup.slots].into(),
            lengths: vec![setup.slice; vcpus].into(),
            debts: None,
        }
    }

    /// For a policy that lets vCPUs keep their slots, or go ahead of their turns, because of what guests say or do: VMs owe
    /// each other what they have beyond their parts ([`Debts`]).
    pub(super) fn with_debts(setup: &Setup<'_>) -> Self {
        Self { debts: Some(Debts::new(setup)), ..Self::new(setup) }
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

    /// Time left of its turn; zero at its end.
    pub(super) fn left(&self, vcpu: VcpuIndex, view: &View<'_>) -> Nanos {
        self.lengths[vcpu.ix()].since(view.ran(vcpu))
    }

    /// Does its VM owe so much that it may not go ahead of its turn?
    pub(super) fn is_in_arrears(&self, vcpu: VcpuIndex) -> bool {
        self.debts.as_ref().is_some_and(|debts| debts.is_in_arrears(vcpu))
    }

    /// What the debts of its VM leave of a grace.
    pub(super) fn grace(&self, vcpu: VcpuIndex, grace: Nanos) -> Nanos {
        self.debts.as_ref().map_or(grace, |debts| debts.grace(vcpu, grace))
    }

    /// Notes that `vcpu` waits from now on, in this queue ([`Rr::join`]) or in one that the calling policy keeps.
    pub(super) fn waits(&mut self, vcpu: VcpuIndex, view: &View<'_>) {
        self.since[vcpu.ix()] = view.now;
        if let Some(debts) = &mut self.debts {
            debts.waits(vcpu, view.now);
        }
    }

    /// `vcpu`, which waits, is the last of the round.
    pub(super) fn join(&mut self, vcpu: VcpuIndex) {
        self.queue.push(vcpu);
    }

    /// The next of the round: the first whose VM is not passed over, unless the head is overdue.
    pub(super) fn take_next(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        let debts = self.debts.as_ref().filter(|_| self.overdue(view).is_none());
        let unburdened =
            debts.and_then(|debts| self.queue.take(|vcpu| !debts.is_passed_over(vcpu)));
        unburdened.or_else(|| self.queue.pop())
    }

    /// The turn of `vcpu`, which waited and is in no queue any more: it lasts for `most`, or what debts leave of that.
    pub(super) fn begin(&mut self, vcpu: VcpuIndex, most: Nanos, view: &View<'_>) -> Pick {
        let debts = self.debts.as_mut();
        let length = debts.map_or(most, |debts| debts.begins(vcpu, most, view.now));
        self.lengths[vcpu.ix()] = length;
        Pick::new(vcpu, view.now.after(length))
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
        self.join(vcpu);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        if let Some(debts) = &mut self.debts {
            debts.gone(vcpu);
        }
        self.queue.remove(vcpu);
        let is_of = |next: &Option<(VcpuIndex, Nanos)>| next.is_some_and(|(next, _)| next == vcpu);
        self.next.iter_mut().filter(|next| is_of(next)).for_each(|next| *next = None);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let (vcpu, most) = match self.next[slot.0 as usize].take() {
            Some(next) => next,
            None => (self.take_next(view)?, self.slice),
        };
        Some(self.begin(vcpu, most, view))
    }

    fn turn_over(&mut self, vcpu: VcpuIndex, _: TurnEnd, _: Nanos, view: &View<'_>) {
        let left = self.left(vcpu, view);
        if let Some(debts) = &mut self.debts {
            debts.stops(vcpu, left, view.now);
        }
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
