//! `rr`: round robin. Each vCPU runs in turn for one slice, regardless of locks. The textbook policy, and the
//! policy of a hypervisor that knows nothing about its guests. The blind baseline: it shows the cost of
//! lock-holder preemption. A vCPU that yields to another ([`Event::YieldsTo`](crate::Event::YieldsTo)) gives
//! it the rest of its slice, so no third vCPU waits longer and no VM gains by it. Both are then at the end of
//! the round. Waiting time: at most one slice per other vCPU.

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View, debt::Debts, queue::Queue};
use crate::{
    event::{Observation, VcpuIndex},
    log::SliceEnd,
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

    pub(super) fn new_slice_end(&self, view: &View<'_>) -> Nanos {
        view.now.after(self.slice)
    }

    /// Returns the remaining time of the vCPU's slice; zero at its end.
    pub(super) fn remaining(&self, vcpu: VcpuIndex, view: &View<'_>) -> Nanos {
        self.lengths[vcpu.ix()].since(view.ran(vcpu))
    }

    /// Whether the vCPU's VM owes so much that the vCPU may not go ahead of the round.
    pub(super) fn is_in_arrears(&self, vcpu: VcpuIndex) -> bool {
        self.debts.as_ref().is_some_and(|debts| debts.is_in_arrears(vcpu))
    }

    /// Returns `grace` as limited by the debt of the vCPU's VM.
    pub(super) fn limit_grace(&self, vcpu: VcpuIndex, grace: Nanos) -> Nanos {
        self.debts.as_ref().map_or(grace, |debts| debts.limit_grace(vcpu, grace))
    }

    /// Records that `vcpu` waits from now on, in this queue ([`Rr::enqueue`]) or in a queue of the caller.
    pub(super) fn start_waiting(&mut self, vcpu: VcpuIndex, view: &View<'_>) {
        self.since[vcpu.ix()] = view.now;
        if let Some(debts) = &mut self.debts {
            debts.start_waiting(vcpu, view.now);
        }
    }

    /// Appends `vcpu`, which waits, to the round.
    pub(super) fn enqueue(&mut self, vcpu: VcpuIndex) {
        self.queue.push(vcpu);
    }

    /// Takes the next vCPU of the round: the head if overdue, else the first not passed over, else the head.
    pub(super) fn take_next(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        let debts = self.debts.as_ref().filter(|_| self.overdue(view).is_none());
        let eligible = debts.and_then(|debts| self.queue.take(|vcpu| !debts.is_passed_over(vcpu)));
        eligible.or_else(|| self.queue.pop())
    }

    /// Starts a slice of `vcpu`, which waited and is no longer queued: `max`, or less in case of debts.
    pub(super) fn begin(&mut self, vcpu: VcpuIndex, max: Nanos, view: &View<'_>) -> Pick {
        let debts = self.debts.as_mut();
        let length = debts.map_or(max, |debts| debts.start_slice(vcpu, max, view.now));
        self.lengths[vcpu.ix()] = length;
        Pick::new(vcpu, view.now.after(length))
    }

    pub(super) fn ready_since(&self, vcpu: VcpuIndex) -> Nanos {
        self.since[vcpu.ix()]
    }

    /// Whether the vCPU has waited so long that no other vCPU may go ahead of it. The limit is one slice per
    /// vCPU of the schedule, more than a round takes on one slot.
    pub(super) fn is_overdue(&self, vcpu: VcpuIndex, view: &View<'_>) -> bool {
        let round = Nanos(self.slice.0.saturating_mul(self.since.len() as u64));
        view.now.since(self.ready_since(vcpu)) >= round
    }

    pub(super) fn first(&self) -> Option<VcpuIndex> {
        self.queue.first()
    }

    /// Returns the head of the queue if it is overdue. A policy that lets others go ahead serves it first.
    pub(super) fn overdue(&self, view: &View<'_>) -> Option<VcpuIndex> {
        self.queue.first().filter(|vcpu| self.is_overdue(*vcpu, view))
    }

    /// Gives `slot` to `next`, which is not queued, for `length`. The current slice there ends in this step.
    pub(super) fn assign(&mut self, slot: SlotId, next: VcpuIndex, length: Nanos) {
        // At most one vCPU is set aside per slot; it is picked in the same step.
        if let Some((displaced, _)) = self.next[slot.0 as usize].replace((next, length)) {
            self.queue.push_front(displaced);
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
        self.start_waiting(vcpu, view);
        self.enqueue(vcpu);
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        if let Some(debts) = &mut self.debts {
            debts.remove(vcpu);
        }
        self.queue.remove(vcpu);
        let is_of = |next: &Option<(VcpuIndex, Nanos)>| next.is_some_and(|(next, _)| next == vcpu);
        self.next.iter_mut().filter(|next| is_of(next)).for_each(|next| *next = None);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let (vcpu, max) = match self.next[slot.0 as usize].take() {
            Some(next) => next,
            None => (self.take_next(view)?, self.slice),
        };
        Some(self.begin(vcpu, max, view))
    }

    fn slice_ended(&mut self, vcpu: VcpuIndex, _: SliceEnd, _: Nanos, view: &View<'_>) {
        let left = self.remaining(vcpu, view);
        if let Some(debts) = &mut self.debts {
            debts.end_slice(vcpu, left, view.now);
        }
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        match self.remaining(vcpu, view) {
            Nanos::ZERO if self.is_contended() => Verdict::Preempt(Reason::Slice),
            Nanos::ZERO => Verdict::Stay(self.new_slice_end(view)),
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
        let (slot, left) = (view.slot_of(vcpu)?, self.remaining(vcpu, view));
        if left == Nanos::ZERO {
            return None;
        }
        let next = self.queue.take(|waiting| waiting == to)?;
        self.assign(slot, next, left);
        Some(Verdict::Preempt(Reason::Spun))
    }
}
