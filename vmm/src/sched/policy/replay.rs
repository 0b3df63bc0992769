//! `replay:FILE`: the turns of a recording again, each on its slot, in their order, for as long.
//! A turn whose vCPU halts is waited for while anybody runs; then the vCPU is woken, which its
//! guest must expect, and that is a divergence. Only a turn of a vCPU that has left is skipped.
//! After deterministic replay (ReVirt, Dunlap et al., OSDI 2002), of the schedule alone.

use serde::Serialize;

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, rr::Rr};
use crate::{
    sched::{
        event::{Look, VcpuIndex},
        log::{Turn, TurnEnd},
    },
    units::{Nanos, SlotId},
};

/// How far a replay followed its recording.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// Turns of the recording, up to the first that its end cut off.
    pub recorded: u64,
    /// Of them, taken again.
    pub replayed: u64,
    /// Of them, left out: the vCPU had left.
    pub skipped: u64,
    /// vCPUs that halted when their turn came, nobody ran who could kick them, and were woken.
    pub woken: u64,
    /// Turns that ended by themselves, earlier than recorded.
    pub early: u64,
    /// Turns that were recorded to end by themselves and did not.
    pub late: u64,
}

#[derive(Debug)]
pub(super) struct Replay {
    turns: Box<[Turn]>,
    next: usize,
    /// By vCPU: the turn it is at.
    current: Box<[Option<usize>]>,
    ready: Box<[bool]>,
    /// When the recording is used up.
    after: Rr,
    slice: Nanos,
    divergence: Divergence,
}

impl Replay {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let recorded = setup.recording.map_or(&[][..], |recording| recording.turns.as_slice());
        // How long a turn would have lasted that was not over is not known, nor what came next.
        // (And a recording of another schedule is not for this one.)
        let fits = |turn: &&Turn| {
            turn.end != TurnEnd::Open
                && turn.vcpu.ix() < setup.vms.len()
                && (turn.slot.0 as usize) < setup.slots
        };
        let turns: Box<[Turn]> = recorded.iter().take_while(fits).copied().collect();
        let vcpus = setup.vms.len();
        let recorded = turns.len() as u64;
        Self {
            turns,
            next: 0,
            current: vec![None; vcpus].into(),
            ready: vec![false; vcpus].into(),
            after: Rr::new(setup),
            slice: setup.slice,
            divergence: Divergence { recorded, ..Divergence::default() },
        }
    }

    fn is_over(&self) -> bool {
        self.next == self.turns.len()
    }

    /// How long the vCPU of that turn was kept off afterwards.
    fn off_after(&self, ix: usize) -> Nanos {
        let turn = &self.turns[ix];
        let again = self.turns[ix + 1..].iter().find(|later| later.vcpu == turn.vcpu);
        again.map_or(Nanos::ZERO, |again| again.at.since(turn.at.after(turn.ran)))
    }

    /// The turn to take now.
    fn due(&mut self, view: &View<'_>) -> Option<usize> {
        while self.turns.get(self.next).is_some_and(|turn| view.is_gone(turn.vcpu)) {
            self.divergence.skipped += 1;
            self.next += 1;
        }
        let turn = self.turns.get(self.next)?;
        self.ready[turn.vcpu.ix()].then_some(self.next)
    }
}

impl Policy for Replay {
    fn ready(&mut self, vcpu: VcpuIndex, why: Ready, view: &View<'_>) {
        self.ready[vcpu.ix()] = true;
        self.after.ready(vcpu, why, view);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.ready[vcpu.ix()] = false;
        self.after.gone(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let pick = match self.due(view) {
            Some(ix) if self.turns[ix].slot == slot => {
                self.next += 1;
                self.divergence.replayed += 1;
                let Turn { vcpu, ran, end, .. } = self.turns[ix];
                self.current[vcpu.ix()] = Some(ix);
                self.after.gone(vcpu);
                let until = if end.is_voluntary() { self.slice.after(ran).after(ran) } else { ran };
                Some(Pick { vcpu, until: view.now.after(until) })
            }
            None if self.is_over() => self.after.pick(slot, view),
            _ => None,
        }?;
        self.ready[pick.vcpu.ix()] = false;
        Some(pick)
    }

    fn stopped(&mut self, vcpu: VcpuIndex, look: &Look, view: &View<'_>) -> Verdict {
        let Some(ix) = self.current[vcpu.ix()] else { return self.after.stopped(vcpu, look, view) };
        let Turn { ran, end, .. } = self.turns[ix];
        let limit = if end.is_voluntary() { self.slice.after(ran).after(ran) } else { ran };
        let left = limit.since(view.ran(vcpu));
        match end {
            _ if left > Nanos::ZERO => Verdict::Stay(view.now.after(left)),
            TurnEnd::Injected => Verdict::Hold(view.now.after(self.off_after(ix))),
            TurnEnd::Grace => Verdict::Preempt(Why::Grace),
            TurnEnd::Spun => Verdict::Preempt(Why::Spun),
            TurnEnd::MadeWay => Verdict::Preempt(Why::MadeWay),
            _ => Verdict::Preempt(Why::Slice),
        }
    }

    fn turn_over(&mut self, vcpu: VcpuIndex, end: TurnEnd, _: Nanos) {
        let Some(ix) = self.current[vcpu.ix()].take() else { return };
        match (self.turns[ix].end.is_voluntary(), end.is_voluntary()) {
            (false, true) => self.divergence.early += 1,
            (true, false) => self.divergence.late += 1,
            _ => {}
        }
    }

    fn wakes(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        if view.anybody_runs() || self.due(view).is_some() {
            return None;
        }
        let turn = self.turns.get(self.next).filter(|turn| view.is_halted(turn.vcpu))?;
        self.divergence.woken += 1;
        Some(turn.vcpu)
    }

    fn is_work_conserving(&self) -> bool {
        false
    }

    fn divergence(&self) -> Option<Divergence> {
        Some(self.divergence)
    }
}
