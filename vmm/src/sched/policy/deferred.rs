//! `deferred[:ask|look[,GRACE]]`: the slice's end waits for a moment with no lock held or awaited,
//! up to GRACE (a slice): asked of the guest, or found by stopping it and looking at its telemetry.
//! Who kicks a waiter makes way for it: that too is such a moment, and the lock waits for no slot.
//! Lock-aware preemption, after Uhlig et al. (VM 2004), who delay it by "safe points".
//! Right whenever guests tell: what is never preempted in a lock keeps nobody waiting.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue, rr::Rr};
use crate::{
    sched::event::{Look, VcpuIndex},
    units::{Nanos, SlotId},
};

/// Between two looks at a guest that is not asked: a part of its turn,
const LOOKS_A_SLICE: u64 = 20;
/// and far more than an entry into the guest takes, or it would never get on (measured).
const LOOK_AGAIN: Nanos = Nanos::micros(100);

/// How the moment is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The guest is asked to yield.
    Ask,
    /// It is stopped again and again.
    Look,
}

#[derive(Debug)]
pub(super) struct Deferred {
    rr: Rr,
    kicked: Queue,
    way: Way,
    grace: Nanos,
    slice: Nanos,
}

impl Deferred {
    pub(super) fn new(setup: &Setup<'_>, way: Way, grace: Option<Nanos>) -> Self {
        Self {
            rr: Rr::new(setup),
            kicked: Queue::with_room(setup.vms.len()),
            way,
            grace: grace.unwrap_or(setup.slice),
            slice: setup.slice,
        }
    }
}

impl Deferred {
    fn is_contended(&self) -> bool {
        self.rr.is_contended() || !self.kicked.is_empty()
    }
}

impl Policy for Deferred {
    fn ready(&mut self, vcpu: VcpuIndex, why: Ready, view: &View<'_>) {
        match why {
            Ready::Kicked(_) => self.kicked.push(vcpu),
            _ => self.rr.ready(vcpu, why, view),
        }
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.kicked.remove(vcpu);
        self.rr.gone(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        match self.kicked.pop() {
            Some(vcpu) => Some(Pick { vcpu, until: self.rr.turn(view) }),
            None => self.rr.pick(slot, view),
        }
    }

    fn stopped(&mut self, vcpu: VcpuIndex, look: &Look, view: &View<'_>) -> Verdict {
        if self.rr.left(vcpu, view) > Nanos::ZERO || !self.is_contended() {
            return self.rr.stopped(vcpu, look, view);
        }
        if !look.doing.is_involved() {
            return Verdict::Preempt(Why::Slice);
        }
        let left = self.slice.after(self.grace).since(view.ran(vcpu));
        match self.way {
            _ if left == Nanos::ZERO => Verdict::Preempt(Why::Grace),
            Way::Ask => Verdict::Ask(view.now.after(left)),
            Way::Look => {
                let pause = Nanos(self.slice.0 / LOOKS_A_SLICE).max(LOOK_AGAIN);
                Verdict::Stay(view.now.after(left.min(pause)))
            }
        }
    }

    fn yielded(&mut self, _: VcpuIndex, view: &View<'_>) -> Verdict {
        match self.is_contended() {
            true => Verdict::Preempt(Why::Yield),
            false => Verdict::Stay(self.rr.turn(view)),
        }
    }

    fn makes_way(&mut self, _: VcpuIndex, _: &View<'_>) -> bool {
        true
    }
}
