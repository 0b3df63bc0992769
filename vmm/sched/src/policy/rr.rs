//! `rr`: round robin. Each vCPU runs in turn for one slice, regardless of locks. The textbook policy, and the
//! policy of a hypervisor that knows nothing about its guests. The blind baseline: it shows the cost of
//! lock-holder preemption. A vCPU that yields to another ([`Event::YieldsTo`](crate::Event::YieldsTo)) gives
//! it the rest of its slice, so no third vCPU waits longer and no VM gains by it. Both are then at the end of
//! the round. Waiting time: at most one slice per other vCPU.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, debt::Debts, queue::Queue};
use crate::{
    event::{Observation, VcpuIndex},
    log::TurnEnd,
};
use base::units::{Nanos, SlotId};

/// Round robin. Other policies use it between their own decisions.
#[derive(Debug)]
pub(super) struct Rr {
    queue: Queue,
    slice: Nanos,
    /// By vCPU: the time it became ready. Valid only while it waits for a slot.
    since: Box<[Nanos]>,
    /// By slot: the vCPU that gets it next, and for how long.
    next: Box<[Option<(VcpuIndex, Nanos)>]>,
    /// By vCPU: the length of its slice.
    lengths: Box<[Nanos]>,
    /// Debts between VMs, for policies that act on reports of guests.
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

    /// Adds debts of VMs for time beyond their shares ([`Debts`]). For policies under which vCPUs keep their
    /// slots or run out of order because of the behaviour or the reports of guests.
    pub(super) fn with_debts(setup: &Setup<'_>) -> Self {
        Self { debts: Some(Debts::new(setup)), ..Self::new(setup) }
    }

    /// Whether any vCPU is waiting.
    pub(super) fn is_contended(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns the queue, for policies that serve it in another order.
    pub(super) fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Returns the waiting vCPUs in the order of the round.
    pub(super) fn waiting(&self) -> impl Iterator<Item = VcpuIndex> {
        self.queue.iter()
    }

    pub(super) fn turn(&self, view: &View<'_>) -> Nanos {
        view.now.after(self.slice)
    }

    /// Returns the remaining time of the vCPU's slice; zero at its end.
    pub(super) fn left(&self, vcpu: VcpuIndex, view: &View<'_>) -> Nanos {
        self.lengths[vcpu.ix()].since(view.ran(vcpu))
    }

    /// Whether the vCPU's VM owes so much that the vCPU may not go ahead of the round.
    pub(super) fn is_in_arrears(&self, vcpu: VcpuIndex) -> bool {
        self.debts.as_ref().is_some_and(|debts| debts.is_in_arrears(vcpu))
    }

    /// Returns `grace` as limited by the debt of the vCPU's VM.
    pub(super) fn grace(&self, vcpu: VcpuIndex, grace: Nanos) -> Nanos {
        self.debts.as_ref().map_or(grace, |debts| debts.grace(vcpu, grace))
    }

    /// Records that `vcpu` waits from now on, in this queue ([`Rr::join`]) or in a queue of the caller.
    pub(super) fn waits(&mut self, vcpu: VcpuIndex, view: &View<'_>) {
        self.since[vcpu.ix()] = view.now;
        if let Some(debts) = &mut self.debts {
            debts.waits(vcpu, view.now);
        }
    }

    /// Appends `vcpu`, which waits, to the round.
    pub(super) fn join(&mut self, vcpu: VcpuIndex) {
        self.queue.push(vcpu);
    }

    /// Takes the next vCPU of the round: the first whose VM is not passed over, unless the head is overdue.
    pub(super) fn take_next(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        let debts = self.debts.as_ref().filter(|_| self.overdue(view).is_none());
        let unburdened =
            debts.and_then(|debts| self.queue.take(|vcpu| !debts.is_passed_over(vcpu)));
        unburdened.or_else(|| self.queue.pop())
    }

    /// Starts a slice of `vcpu`, which waited and is no longer queued, of `most` or less in case of debts.
    pub(super) fn begin(&mut self, vcpu: VcpuIndex, most: Nanos, view: &View<'_>) -> Pick {
        let debts = self.debts.as_mut();
        let length = debts.map_or(most, |debts| debts.begins(vcpu, most, view.now));
        self.lengths[vcpu.ix()] = length;
        Pick::new(vcpu, view.now.after(length))
    }

    pub(super) fn since(&self, vcpu: VcpuIndex) -> Nanos {
        self.since[vcpu.ix()]
    }

    /// Whether the vCPU has waited so long that no other vCPU may go ahead of it. The limit is one slice per
    /// vCPU of the schedule, more than a round takes on one slot.
    pub(super) fn is_overdue(&self, vcpu: VcpuIndex, view: &View<'_>) -> bool {
        let round = Nanos(self.slice.0.saturating_mul(self.since.len() as u64));
        view.now.since(self.since(vcpu)) >= round
    }

    pub(super) fn first(&self) -> Option<VcpuIndex> {
        self.queue.first()
    }

    /// Returns the head of the queue if it is overdue. A policy that lets others go ahead serves it first.
    pub(super) fn overdue(&self, view: &View<'_>) -> Option<VcpuIndex> {
        self.queue.first().filter(|vcpu| self.is_overdue(*vcpu, view))
    }

    /// Gives `slot` to `next`, which is not queued, for `length`. The current slice there ends in this step.
    pub(super) fn give(&mut self, slot: SlotId, next: VcpuIndex, length: Nanos) {
        // At most one vCPU is set aside per slot; it is picked in the same step.
        if let Some((other, _)) = self.next[slot.0 as usize].replace((next, length)) {
            self.queue.push_front(other);
        }
    }

    pub(super) fn slice(&self) -> Nanos {
        self.slice
    }

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
