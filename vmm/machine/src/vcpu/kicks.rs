//! The guest's halts and kicks: the protocol of [`sched::halts`] with injected faults, counters and
//! event recording.

use std::{
    sync::OnceLock,
    thread::{self, Thread},
    time::Duration,
};

use sched::halts::{
    DelayedKick, DelayedKicks, Halts, Host, KickPath, Kicked, PendingKicks, Wakeup,
};

use super::{
    fault::{Dice, HaltFate, KickFate},
    recorder::{EventRing, Recorder},
};
use crate::clock::Moment;
use base::{
    counters::{FaultCounts, SingleWriterCounter, VcpuCounters},
    events::{KickOutcome, VcpuEvent},
    units::{Nanos, Ticket, VcpuCount, VcpuId},
};
use kvm::sys::tsc;

/// Maximum sleep between checks for the end of the machine.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Halts and kicks of one machine. Methods with an `id` must be called by that vCPU's thread.
#[derive(Debug)]
pub struct Kicks<H> {
    halts: Halts<H>,
    counters: Box<[VcpuCounters]>,
    recorder: Recorder,
    faults: Option<KickFaults>,
}

#[derive(Debug)]
struct KickFaults {
    dice: Box<[Dice]>,
    delayed: DelayedKicks,
    /// The thread that delivers delayed kicks.
    thread: OnceLock<Thread>,
}

impl KickFaults {
    /// Queues the kick for the delivery thread. Returns whether it will be delivered.
    fn post(&self, id: VcpuId, kick: DelayedKick) -> bool {
        let Some(thread) = self.thread.get() else { return false };
        let is_posted = self.delayed.post(id, kick);
        if is_posted {
            thread.unpark();
        }
        is_posted
    }
}

impl<H: Host> Kicks<H> {
    /// Creates the halts and kicks of `vcpus` vCPUs on `host`. `dice` enables fault injection.
    pub fn new(host: H, vcpus: VcpuCount, recorder: Recorder, dice: Option<Box<[Dice]>>) -> Self {
        let faults =
            |dice| KickFaults { dice, delayed: DelayedKicks::new(vcpus), thread: OnceLock::new() };
        Self {
            halts: Halts::new(host, vcpus),
            counters: vcpus.ids().map(|_| VcpuCounters::default()).collect(),
            recorder,
            faults: dice.map(faults),
        }
    }

    /// The protocol of halts and kicks.
    pub const fn halts(&self) -> &Halts<H> {
        &self.halts
    }

    /// The recorder of vCPU events.
    pub const fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The counters of every vCPU.
    pub const fn counters(&self) -> &[VcpuCounters] {
        &self.counters
    }

    fn counters_of(&self, id: VcpuId) -> &VcpuCounters {
        &self.counters[id.0 as usize]
    }

    fn ring(&self, id: VcpuId) -> &EventRing {
        self.recorder.ring(id)
    }

    /// Returns the number of injected faults so far, or None if fault injection is off.
    pub fn fault_counts(&self) -> Option<FaultCounts> {
        let faults = self.faults.as_ref()?;
        Some(faults.dice.iter().map(Dice::counts).fold(
            FaultCounts::default(),
            |mut total, counts| {
                total += counts;
                total
            },
        ))
    }

    /// Handles `lock_spinning` of vCPU `id`: sleeps until a kick or the end of the machine.
    pub fn halt(&self, id: VcpuId, ticket: Ticket) {
        self.counters_of(id).lock_spinning.bump();
        if let Some(faults) = &self.faults {
            match faults.dice[id.0 as usize].halt() {
                HaltFate::Begins(late) => self.sleep(late),
                HaltFate::Spurious => return self.ring(id).add(VcpuEvent::Spurious(ticket)),
            }
        }
        self.park(id, ticket, None);
    }

    /// Handles `unlock_kick(target)` by vCPU `id`, or its write to the doorbell of `target` if no
    /// ioeventfd handled it.
    pub fn kick(&self, id: VcpuId, target: VcpuId, path: KickPath) {
        let counters = self.counters_of(id);
        counters.unlock_kick.bump();
        if !self.halts.has(target) {
            return counters.unknown_target.bump();
        }
        match &self.faults {
            None => self.deliver_now(id, target, path, VcpuEvent::Kicks),
            Some(faults) => self.kick_with(faults, id, target, path),
        }
    }

    /// Handles `unlock_kick(target)` followed by `lock_spinning` of vCPU `id` in a single exit. If
    /// `target` was halted, it may resume on the slot that `id` leaves.
    pub fn kick_and_halt(&self, id: VcpuId, target: VcpuId, ticket: Ticket) {
        if self.faults.is_some() || !self.halts.has(target) {
            self.kick(id, target, KickPath::Latch);
            return self.halt(id, ticket);
        }
        let counters = self.counters_of(id);
        counters.unlock_kick.bump();
        let at = tsc::read();
        let (outcome, wakeup) = self.post(target, KickPath::Latch, Some(id));
        self.ring(id).add_at(at, VcpuEvent::Kicks(target, outcome));
        counters.lock_spinning.bump();
        self.park(id, ticket, wakeup);
    }

    /// Ends a halt of `target`, if any. To the guest, the halt returns spuriously.
    pub fn end_halt(&self, target: VcpuId) {
        if let Kicked::Parked(wakeup) = self.halts.kick(target) {
            wakeup.deliver(None);
        }
    }

    /// Registers the thread that calls [`Kicks::deliver_due`] each time it is unparked.
    pub fn register_delivery_thread(&self, thread: Thread) {
        if let Some(faults) = &self.faults {
            let _ = faults.thread.set(thread);
        }
    }

    /// Delivers delayed kicks that are due at `now`. Returns the due time of the next delayed kick, if any.
    pub fn deliver_due(&self, pending: &mut PendingKicks, now: Nanos) -> Option<Nanos> {
        pending.deliver_due(&self.faults.as_ref()?.delayed, now, |kick| {
            let outcome = self.deliver(kick.target, kick.path, None);
            self.recorder.delayed().add(VcpuEvent::Kicks(kick.target, outcome));
        })
    }

    /// Halts `id` unless a kick is pending. `wakeup` is for the vCPU that it has kicked.
    fn park(&self, id: VcpuId, ticket: Ticket, wakeup: Option<Wakeup<'_, H>>) {
        let ring = self.ring(id);
        let Some(parked) = self.halts.park(id, ticket, wakeup) else {
            return ring.add(VcpuEvent::KickPending(ticket));
        };
        self.counters_of(id).parked.bump();
        ring.add(VcpuEvent::Parks(ticket));
        parked.sleep();
        ring.add(VcpuEvent::Resumes);
    }

    /// Delivers a kick subject to injected faults.
    fn kick_with(&self, faults: &KickFaults, id: VcpuId, target: VcpuId, path: KickPath) {
        let dice = &faults.dice[id.0 as usize];
        let KickFate { deliveries, stray } = dice.kick(target);
        if let Some(stray) = stray {
            self.deliver_now(id, stray, path, VcpuEvent::WakesOther);
        }
        if deliveries.is_empty() {
            self.ring(id).add(VcpuEvent::Kicks(target, KickOutcome::Dropped));
        }
        for (ix, after) in deliveries.into_iter().enumerate() {
            let due = Moment::now().nanos().after(after);
            // A kick that cannot be delayed is delivered at once.
            let is_late = after > Nanos::ZERO && faults.post(id, DelayedKick { due, target, path });
            if ix == 0 && after != Nanos::ZERO {
                if is_late {
                    dice.count_delayed();
                } else {
                    dice.count_not_delayed();
                }
            }
            if is_late {
                self.ring(id).add(VcpuEvent::Kicks(target, KickOutcome::Delayed))
            } else {
                self.deliver_now(id, target, path, VcpuEvent::Kicks)
            }
        }
    }

    /// Delivers a kick by vCPU `id` and records it.
    fn deliver_now(
        &self,
        id: VcpuId,
        target: VcpuId,
        path: KickPath,
        event: fn(VcpuId, KickOutcome) -> VcpuEvent,
    ) {
        // The target may run, and the kicker may be preempted in its favour, before the outcome is
        // known.
        let at = tsc::read();
        let outcome = self.deliver(target, path, Some(id));
        self.ring(id).add_at(at, event(target, outcome));
    }

    /// Delivers a kick by vCPU `by`, or by the delivery thread if `None`.
    fn deliver(&self, target: VcpuId, path: KickPath, by: Option<VcpuId>) -> KickOutcome {
        let (outcome, wakeup) = self.post(target, path, by);
        if let Some(wakeup) = wakeup {
            wakeup.deliver(by);
        }
        outcome
    }

    /// Posts a kick. If the target was parked, returns the wakeup, which the caller must deliver.
    fn post(
        &self,
        target: VcpuId,
        path: KickPath,
        by: Option<VcpuId>,
    ) -> (KickOutcome, Option<Wakeup<'_, H>>) {
        // Delayed kicks are not included in any vCPU's counters.
        let count = |counter: fn(&VcpuCounters) -> &SingleWriterCounter| {
            if let Some(id) = by {
                counter(self.counters_of(id)).bump();
            }
        };
        let outcome = match path {
            KickPath::Doorbell => KickOutcome::Sent,
            KickPath::Latch => match self.halts.kick(target) {
                Kicked::Parked(wakeup) => {
                    count(|counters| &counters.woke_parked);
                    return (KickOutcome::Woke, Some(wakeup));
                }
                Kicked::LeftPending => {
                    count(|counters| &counters.left_pending);
                    KickOutcome::LeftPending
                }
                Kicked::Coalesced => {
                    count(|counters| &counters.coalesced);
                    KickOutcome::Coalesced
                }
            },
        };
        // The target is not parked: it runs, or it is in HLT.
        if self.halts.send_msi(target, by) {
            count(|counters| &counters.kick_msi);
        }
        (outcome, None)
    }

    /// Sleeps for `span`, or until the machine stops.
    fn sleep(&self, span: Nanos) {
        let mut remaining = Duration::from_nanos(span.0);
        while !remaining.is_zero() && !self.halts.is_stopping() {
            let nap = remaining.min(MAX_SLEEP);
            thread::sleep(nap);
            remaining -= nap;
        }
    }
}

#[cfg(test)]
#[path = "kicks_tests.rs"]
mod tests;
