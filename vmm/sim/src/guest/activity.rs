//! Lock activity of vCPUs, as reported by the lock code itself.

use std::cell::Cell;

use base::units::Nanos;
use sched::event::{LockActivity, LockId};

use super::Queued;
use super::waits::WaitCounter;
use crate::time::Picos;

/// Flag in the id of a lock without tickets, as in a guest's telemetry.
const NO_HEAD: u64 = 1;
/// Distance between two tickets.
const INC: u16 = 2;
/// Ticket reported for a waiter for a lock without tickets: next in line, and behind others. Odd, unlike real tickets.
const NEXT: u16 = 3;
const BEHIND: u16 = 5;
/// Smallest id of a lock. Zero means no lock.
const FIRST: usize = 64;
/// Size of the words that contain heads.
const WORD: usize = 4;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitKind {
    #[default]
    None,
    /// The vCPU draws a ticket, or checks whether the lock is free.
    Entering,
    Spinning,
    Halted,
    Throttled,
    Kicking,
}

/// The lock activity of a vCPU, and its counters.
#[derive(Debug, Default)]
pub(crate) struct VcpuActivity {
    pub(crate) wait: Cell<WaitKind>,
    lock: Cell<u64>,
    ticket: Cell<u16>,
    since: Cell<Nanos>,
    /// Its position in the queue, if the lock provides it.
    queued: Cell<Option<Queued>>,
    holds: Cell<bool>,
    held_lock: Cell<u64>,
    held_ticket: Cell<Option<u16>>,
    /// Whether the vCPU is releasing its lock.
    pub(crate) releases: Cell<bool>,
    /// Whether its operation calls `try_lock` first.
    pub(crate) tries: Cell<bool>,
    /// Whether the schedule has asked the vCPU to yield.
    pub(crate) yields: Cell<bool>,
    pub(crate) operations: Cell<u64>,
    pub(crate) slow: Cell<u64>,
    pub(crate) halts: Cell<u64>,
    pub(crate) kicks: Cell<u64>,
    pub(crate) retries: Cell<u64>,
    pub(crate) violations: Cell<u64>,
    pub(crate) disorder: Cell<u64>,
}

pub(crate) fn count(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

/// State shared by the vCPUs and the engine, in addition to the simulated memory.
#[derive(Debug)]
pub(crate) struct SharedActivity {
    /// Time of the running vCPU.
    now: Cell<Picos>,
    is_ended: Cell<bool>,
    pub(crate) operations: Cell<u64>,
    pub(crate) waits: WaitCounter,
    /// Mask of the points that vCPUs report.
    pub(crate) points: Cell<u32>,
    pub(crate) spin_limit: u32,
    /// Per vCPU: an address of its guest minus this is the offset in the memory of all guests.
    bases: Box<[usize]>,
    vcpus: Box<[VcpuActivity]>,
    /// The served ticket, by the offset of a lock's word.
    heads: Box<[Cell<u16>]>,
}

impl SharedActivity {
    /// For vCPUs with these `bases`, in guests with `locks` locks each and a total of `size` bytes of
    /// memory.
    pub(crate) fn new(bases: Box<[usize]>, size: usize, locks: usize, spin_limit: u32) -> Self {
        let vcpus = bases.len();
        Self {
            now: Cell::default(),
            is_ended: Cell::default(),
            operations: Cell::default(),
            waits: WaitCounter::new(vcpus, locks),
            points: Cell::default(),
            spin_limit,
            bases,
            vcpus: (0..vcpus).map(|_| VcpuActivity::default()).collect(),
            heads: (0..(size + FIRST) / WORD).map(|_| Cell::default()).collect(),
        }
    }

    #[inline(always)]
    pub(crate) fn vcpu(&self, vcpu: usize) -> &VcpuActivity {
        &self.vcpus[vcpu]
    }

    pub(crate) fn vcpus(&self) -> &[VcpuActivity] {
        &self.vcpus
    }

    /// Sets the time of the vCPU that runs next.
    #[inline(always)]
    pub(crate) fn set_now(&self, now: Picos) {
        self.now.set(now);
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> Picos {
        self.now.get()
    }

    #[inline(always)]
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.get()
    }

    /// Makes every vCPU end after its operation.
    pub(crate) fn end(&self) {
        self.is_ended.set(true);
    }

    /// The id of the lock at an address of the guest of `vcpu`. It is the lock's offset in the memory of all
    /// guests, because addresses differ between runs.
    fn id(&self, vcpu: usize, lock: usize, has_tickets: bool) -> u64 {
        let offset = (lock.wrapping_sub(self.bases[vcpu]) + FIRST) as u64;
        if has_tickets { offset } else { offset | NO_HEAD }
    }

    fn head(&self, lock: u64) -> Option<&Cell<u16>> {
        (lock & NO_HEAD == 0).then(|| self.heads.get(lock as usize / WORD))?
    }

    pub(crate) fn record_entry(&self, vcpu: usize) {
        self.vcpus[vcpu].wait.set(WaitKind::Entering);
    }

    pub(crate) fn set_wait(&self, vcpu: usize, wait: WaitKind, lock: usize, ticket: Option<u16>) {
        let state = &self.vcpus[vcpu];
        state.lock.set(self.id(vcpu, lock, ticket.is_some()));
        state.ticket.set(ticket.unwrap_or(0));
        state.since.set(self.now.get().to_clock());
        state.queued.set(None);
        state.wait.set(wait);
    }

    /// Like [`SharedActivity::set_wait`], for a vCPU that spins for a lock without tickets.
    pub(crate) fn record_queued(&self, vcpu: usize, lock: usize, queued: Option<Queued>) {
        self.set_wait(vcpu, WaitKind::Spinning, lock, None);
        self.vcpus[vcpu].queued.set(queued);
    }

    pub(crate) fn record_take(&self, vcpu: usize, lock: usize, ticket: Option<u16>) {
        let state = &self.vcpus[vcpu];
        let id = self.id(vcpu, lock, ticket.is_some());
        if let (Some(ticket), Some(head)) = (ticket, self.head(id)) {
            head.set(ticket);
        }
        state.held_lock.set(id);
        state.held_ticket.set(ticket);
        state.holds.set(true);
        state.wait.set(WaitKind::None);
    }

    pub(crate) fn record_release(&self, vcpu: usize) {
        let state = &self.vcpus[vcpu];
        state.holds.set(false);
        let head = self.head(state.held_lock.get());
        if let (Some(ticket), Some(head)) = (state.held_ticket.get(), head) {
            head.set(ticket.wrapping_add(INC));
        }
    }

    /// Whether `vcpu` has the ticket before `ticket` of the lock at `lock`.
    pub(crate) fn is_before(&self, vcpu: usize, lock: usize, ticket: u16) -> bool {
        let (id, before) = (self.id(vcpu, lock, true), ticket.wrapping_sub(INC));
        let state = &self.vcpus[vcpu];
        match state.wait.get() {
            WaitKind::Spinning | WaitKind::Halted => {
                state.lock.get() == id && state.ticket.get() == before
            }
            _ => {
                let held = (state.held_lock.get(), state.held_ticket.get());
                state.holds.get() && held == (id, Some(before))
            }
        }
    }

    /// The lock activity of `vcpu`. `is_drawn`: whether it has drawn a ticket if it has entered a lock.
    /// `place` returns the number of releases before a waiter of the lock with this index is served.
    pub(crate) fn activity(
        &self,
        vcpu: usize,
        is_drawn: bool,
        place: impl FnOnce(usize, Queued) -> Option<u16>,
    ) -> LockActivity {
        let state = &self.vcpus[vcpu];
        if state.holds.get() {
            return LockActivity::Holding { lock: Some(LockId(state.held_lock.get())), depth: 1 };
        }
        let (lock, ticket, since) = (state.lock.get(), state.ticket.get(), state.since.get());
        match state.wait.get() {
            WaitKind::None => LockActivity::Free,
            WaitKind::Entering if !is_drawn => LockActivity::Free,
            WaitKind::Entering => LockActivity::Entering,
            wait @ (WaitKind::Spinning | WaitKind::Halted) => {
                let in_queue = |queued| place(self.waits.lock(vcpu), queued);
                let (ticket, distance) = match (self.head(lock), state.queued.get()) {
                    (Some(head), _) => (ticket, Some(ticket.wrapping_sub(head.get()) / INC)),
                    (None, queued) => match queued.and_then(in_queue) {
                        None => (0, None),
                        Some(releases @ (0 | 1)) => (NEXT, Some(releases)),
                        Some(releases) => (BEHIND, Some(releases)),
                    },
                };
                let (lock, halted) = (LockId(lock), wait == WaitKind::Halted);
                LockActivity::Waiting { lock, ticket, distance, since, halted }
            }
            WaitKind::Throttled => {
                LockActivity::Throttled { lock: LockId(lock), queued: None, since }
            }
            WaitKind::Kicking => LockActivity::Kicking { lock: LockId(lock), ticket },
        }
    }
}
