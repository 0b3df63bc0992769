//! `rr`: round robin. Everybody in turn, for one slice each, whatever it does with locks.
//! The textbook's; what a hypervisor does that knows nothing of its guests.
//! Right as the blind baseline: it shows what lock-holder preemption costs.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue};
use crate::{
    sched::event::{Look, VcpuIndex},
    units::{Nanos, SlotId},
};

/// Also what other policies do between their own decisions.
#[derive(Debug)]
pub(super) struct Rr {
    queue: Queue,
    slice: Nanos,
}

impl Rr {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self { queue: Queue::with_room(setup.vms.len()), slice: setup.slice }
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
}

impl Policy for Rr {
    fn ready(&mut self, vcpu: VcpuIndex, _: Ready, _: &View<'_>) {
        self.queue.push(vcpu);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.queue.remove(vcpu);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        let vcpu = self.queue.pop()?;
        Some(Pick { vcpu, until: self.turn(view) })
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Look, view: &View<'_>) -> Verdict {
        match self.left(vcpu, view) {
            Nanos::ZERO if self.is_contended() => Verdict::Preempt(Why::Slice),
            Nanos::ZERO => Verdict::Stay(self.turn(view)),
            left => Verdict::Stay(view.now.after(left)),
        }
    }
}
