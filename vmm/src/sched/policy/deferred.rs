//! `deferred[:ask|look[,GRACE]]`: the slice's end waits for a moment with no lock held or awaited,
//! up to GRACE (a slice) from when another vCPU is first found waiting for the slot: asked of the
//! guest, or found by stopping it and looking at its telemetry. A turn nobody waits behind goes on.
//! A vCPU that kicks a waiter makes way for it, if it holds and awaits no other lock. If it does (it
//! released the inner of two locks, or an interrupt handler's), it is asked to yield, or looked at.
//! Lock-aware preemption, after Uhlig et al. (VM 2004), who delay it by "safe points".
//! Right whenever guests tell: what is never preempted in a lock keeps nobody waiting.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue, rr::Rr};
use crate::{
    sched::{
        event::{Doing, Look, VcpuIndex},
        log::TurnEnd,
    },
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
    turns: Box<[Turn]>,
}

/// What is known of the present turn of a vCPU.
#[derive(Debug, Default, Clone, Copy)]
struct Turn {
    /// When it was first found over, in a lock, with another vCPU waiting. The grace counts from
    /// then: the turn itself may have been prolonged for long before.
    due: Option<Nanos>,
    /// It has kicked a vCPU from within a lock: it makes way once it is out of it.
    makes_way: bool,
}

impl Deferred {
    pub(super) fn new(setup: &Setup<'_>, way: Way, grace: Option<Nanos>) -> Self {
        Self {
            rr: Rr::new(setup),
            kicked: Queue::with_room(setup.vms.len()),
            way,
            grace: grace.unwrap_or(setup.slice),
            slice: setup.slice,
            turns: vec![Turn::default(); setup.vms.len()].into(),
        }
    }

    fn is_contended(&self) -> bool {
        self.rr.is_contended() || !self.kicked.is_empty()
    }

    /// When a vCPU comes out whose turn lasts until `end` at the longest, and which is in a lock.
    fn next_look(&self, end: Nanos, now: Nanos) -> Nanos {
        match self.way {
            Way::Ask => end,
            Way::Look => end.min(now.after(Nanos(self.slice.0 / LOOKS_A_SLICE).max(LOOK_AGAIN))),
        }
    }
}

impl Policy for Deferred {
    fn ready(&mut self, vcpu: VcpuIndex, why: Ready, view: &View<'_>) {
        match why {
            Ready::Kicked(_) => self.kicked.push(vcpu),
            // It has taken a lock before it could be called out.
            Ready::Woken if view.last_seen(vcpu).is_holder() => self.kicked.push(vcpu),
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
        let left = self.rr.left(vcpu, view);
        if !self.is_contended() {
            self.turns[vcpu.ix()] = Turn::default();
            return self.rr.stopped(vcpu, look, view);
        }
        let (end, turn) = (view.now.after(left), &mut self.turns[vcpu.ix()]);
        match (left > Nanos::ZERO, look.doing.is_involved()) {
            (true, _) if !turn.makes_way => Verdict::Stay(end),
            (true, false) => Verdict::Preempt(Why::MadeWay),
            (true, true) => Verdict::Stay(self.next_look(end, view.now)),
            (false, false) => Verdict::Preempt(Why::Slice),
            (false, true) => {
                let forced = turn.due.get_or_insert(view.now).after(self.grace);
                match self.way {
                    _ if forced <= view.now => Verdict::Preempt(Why::Grace),
                    Way::Ask => Verdict::Ask(forced),
                    Way::Look => Verdict::Stay(self.next_look(forced, view.now)),
                }
            }
        }
    }

    fn turn_over(&mut self, vcpu: VcpuIndex, _: TurnEnd, _: Nanos) {
        self.turns[vcpu.ix()] = Turn::default();
    }

    fn yielded(&mut self, _: VcpuIndex, view: &View<'_>) -> Verdict {
        match self.is_contended() {
            true => Verdict::Preempt(Why::Yield),
            false => Verdict::Stay(self.rr.turn(view)),
        }
    }

    fn makes_way(&mut self, by: VcpuIndex, doing: &Doing, view: &View<'_>) -> Option<Verdict> {
        if view.free_slot().is_some() {
            return None;
        }
        if !doing.is_involved() {
            return Some(Verdict::Preempt(Why::MadeWay));
        }
        self.turns[by.ix()].makes_way = true;
        let until = view.until(by);
        Some(match self.way {
            Way::Ask => Verdict::Ask(until),
            Way::Look => Verdict::Stay(self.next_look(until, view.now)),
        })
    }
}
