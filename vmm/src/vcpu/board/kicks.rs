//! Kicks: from the call that asks for one to what it finds.

use hypercalls::latch::Kick;

use super::{Board, Faults};
use crate::{
    clock::Moment,
    kvm::{futex, sys::tsc},
    units::{Nanos, VcpuId},
    vcpu::{
        delayed_kicks::{DelayedKick, KickPath},
        events::{Event, Outcome},
        fault::KickFate,
    },
};

impl Board {
    /// `unlock_kick(target)` by vCPU `id`.
    pub fn unlock_kick(&self, id: VcpuId, target: VcpuId) {
        self.kick(id, target, KickPath::Latch);
    }

    /// The doorbell of `target`, where no ioeventfd has taken the write from `id`.
    pub fn doorbell(&self, id: VcpuId, target: VcpuId) {
        self.kick(id, target, KickPath::Doorbell);
    }

    fn kick(&self, id: VcpuId, target: VcpuId, via: KickPath) {
        let (counters, ring) = (self.counters(id), &self.rings[id.0 as usize]);
        counters.unlock_kick.bump();
        if target.0 as usize >= self.spots.len() {
            return counters.unknown_target.bump();
        }
        // Its target may run, and the kicker itself make way, before the outcome is known.
        let at = tsc::read();
        match &self.faults {
            None => ring.add_at(at, Event::Kicks(target, self.deliver(id, target, via))),
            Some(faults) => self.kick_with(faults, id, target, via),
        }
    }

    /// A kick that may go wrong.
    fn kick_with(&self, faults: &Faults, id: VcpuId, target: VcpuId, via: KickPath) {
        let (dice, ring) = (&faults.dice[id.0 as usize], &self.rings[id.0 as usize]);
        let KickFate { deliveries, stray } = dice.kick(target);
        if let Some(stray) = stray {
            let at = tsc::read();
            ring.add_at(at, Event::Strays(stray, self.deliver(id, stray, via)));
        }
        if deliveries.is_empty() {
            ring.add(Event::Kicks(target, Outcome::Dropped));
        }
        for (ix, after) in deliveries.into_iter().enumerate() {
            let due = Moment::now().reading().after(after);
            // What cannot be late comes at once.
            let late =
                after > Nanos::ZERO && faults.courier.post(id, DelayedKick { due, target, via });
            match late {
                _ if ix > 0 || after == Nanos::ZERO => {}
                true => dice.count_delayed(),
                false => dice.count_not_delayed(),
            }
            let at = tsc::read();
            let outcome = if late { Outcome::Delayed } else { self.deliver(id, target, via) };
            ring.add_at(at, Event::Kicks(target, outcome));
        }
    }

    /// A kick of vCPU `id` arrives.
    fn deliver(&self, id: VcpuId, target: VcpuId, via: KickPath) -> Outcome {
        let outcome = self.kick_latch(id, target, via);
        if outcome == Outcome::Woke {
            self.wake(target, id);
        }
        outcome
    }

    /// `target` has been parked until now.
    pub(super) fn wake(&self, target: VcpuId, id: VcpuId) {
        match &self.gate {
            Some(gate) => gate.kick(target, id),
            None => futex::wake_one(self.spots[target.0 as usize].latch.word()),
        }
    }

    /// Leaves a kick. If it [`Outcome::Woke`], the caller must see that its target wakes.
    pub(super) fn kick_latch(&self, id: VcpuId, target: VcpuId, via: KickPath) -> Outcome {
        let counters = self.counters(id);
        let outcome = match via {
            KickPath::Latch => self.spots[target.0 as usize].latch.kick().into(),
            KickPath::Doorbell => Outcome::Sent,
        };
        match outcome {
            Outcome::Woke => {
                counters.woke_parked.bump();
                return outcome;
            }
            Outcome::LeftPending => counters.left_pending.bump(),
            Outcome::Coalesced => counters.coalesced.bump(),
            Outcome::Sent | Outcome::Dropped | Outcome::Delayed => {}
        }
        // Not parked here: it runs, or it waits in HLT with interrupts on.
        if self.kick_halted(target, Some(id)) {
            counters.kick_msi.bump();
        }
        outcome
    }

    /// The same, by nobody's thread: what it finds is in nobody's counts.
    pub(in crate::vcpu) fn deliver_late(&self, target: VcpuId, via: KickPath) {
        let Some(spot) = self.spots.get(target.0 as usize) else { return };
        let outcome = match via {
            KickPath::Latch => spot.latch.kick().into(),
            KickPath::Doorbell => Outcome::Sent,
        };
        match (outcome, &self.gate) {
            (Outcome::Woke, Some(gate)) => gate.wake(target),
            (Outcome::Woke, None) => futex::wake_one(spot.latch.word()),
            _ => drop(self.kick_halted(target, None)),
        }
        self.late.add(Event::Kicks(target, outcome));
    }

    /// Has the halt of `id` return for no reason that its guest knows.
    pub(in crate::vcpu) fn end_halt(&self, id: VcpuId) {
        let Some(spot) = self.spots.get(id.0 as usize) else { return };
        match (spot.latch.kick(), &self.gate) {
            (Kick::Wake, Some(gate)) => gate.wake(id),
            (Kick::Wake, None) => futex::wake_one(spot.latch.word()),
            _ => {}
        }
    }

    /// An MSI, to whom that may end a HLT, by vCPU `id` if it is a vCPU's.
    fn kick_halted(&self, target: VcpuId, id: Option<VcpuId>) -> bool {
        let sent = self.vm.kick_halted(target);
        if let (true, Some(gate)) = (sent, &self.gate) {
            gate.kick_halted(target, id);
        }
        sent
    }
}
