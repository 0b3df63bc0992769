//! What vCPUs do with locks, as the lock code itself reports it.

use std::cell::Cell;

use base::units::Nanos;
use sched::event::{LockActivity, LockId};

use super::Queued;
use super::waits::WaitCounter;
use crate::time::Picos;

/// Marks the id of a lock that serves no tickets, as a guest's telemetry does.
const NO_HEAD: u64 = 1;
/// Distance between two tickets.
const INC: u16 = 2;
/// What stands for the tickets of a waiter that is next, and of one that is not, of a lock without tickets: odd.
const NEXT: u16 = 3;
const BEHIND: u16 = 5;
/// A lock's id is not zero: that is no lock.
const FIRST: usize = 64;
/// Bytes of the words that heads are in.
const WORD: usize = 4;

/// What a vCPU waits for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitKind {
    #[default]
    Nothing,
    /// Draws a ticket, or looks whether the lock is free.
    Entering,
    Spinning,
    Halted,
    Outside,
    Kicking,
}

/// What one vCPU does, and how often it has done it.
#[derive(Debug, Default)]
pub(crate) struct Doing {
    pub(crate) wait: Cell<WaitKind>,
    lock: Cell<u64>,
    ticket: Cell<u16>,
    since: Cell<Nanos>,
    /// Its place in the queue, if the lock tells it.
    queued: Cell<Option<Queued>>,
    holds: Cell<bool>,
    held_lock: Cell<u64>,
    held_ticket: Cell<Option<u16>>,
    /// The vCPU is in the release of its lock.
    pub(crate) releases: Cell<bool>,
    /// The schedule has asked it to yield.
    pub(crate) yields: Cell<bool>,
    pub(crate) operations: Cell<u64>,
    pub(crate) slow: Cell<u64>,
    pub(crate) halts: Cell<u64>,
    pub(crate) kicks: Cell<u64>,
    pub(crate) retries: Cell<u64>,
    pub(crate) violations: Cell<u64>,
    pub(crate) disorder: Cell<u64>,
}

/// Adds to a counter.
pub(crate) fn count(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

/// What the vCPUs and their machine share, beside the memory that is simulated.
#[derive(Debug)]
pub(crate) struct SharedActivity {
    /// The time of the vCPU that runs.
    now: Cell<Picos>,
    is_over: Cell<bool>,
    /// Operations of all vCPUs.
    pub(crate) operations: Cell<u64>,
    pub(crate) waits: WaitCounter,
    /// The points that vCPUs report, as a mask.
    pub(crate) points: Cell<u32>,
    /// The policy's `spin_looks`.
    pub(crate) spin_looks: u32,
    /// By vCPU: the address at which its guest's memory would begin if it were the first.
    bases: Box<[usize]>,
    vcpus: Box<[Doing]>,
    /// By the offset of a lock's word: the ticket that it serves.
    heads: Box<[Cell<u16>]>,
}

impl SharedActivity {
    /// For vCPUs with these `bases`, whose guests have `size` bytes of memory in all, and so many locks each.
    pub(crate) fn new(bases: Box<[usize]>, size: usize, locks: usize, spin_looks: u32) -> Self {
        let vcpus = bases.len();
        Self {
            now: Cell::default(),
            is_over: Cell::default(),
            operations: Cell::default(),
            waits: WaitCounter::new(vcpus, locks),
            points: Cell::default(),
            spin_looks,
            bases,
            vcpus: (0..vcpus).map(|_| Doing::default()).collect(),
            heads: (0..(size + FIRST) / WORD).map(|_| Cell::default()).collect(),
        }
    }

    #[inline(always)]
    pub(crate) fn doing(&self, vcpu: usize) -> &Doing {
        &self.vcpus[vcpu]
    }

    pub(crate) fn all(&self) -> &[Doing] {
        &self.vcpus
    }

    /// A vCPU runs on at this time.
    #[inline(always)]
    pub(crate) fn set_now(&self, now: Picos) {
        self.now.set(now);
    }

    /// The time of the vCPU that runs.
    #[inline(always)]
    pub(crate) fn now(&self) -> Picos {
        self.now.get()
    }

    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Every vCPU ends after its operation.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
    }

    /// The lock at an address of the guest of `vcpu`, by its offset in the memory of all guests:
    /// addresses differ between runs.
    fn id(&self, vcpu: usize, lock: usize, has_tickets: bool) -> u64 {
        let offset = (lock.wrapping_sub(self.bases[vcpu]) + FIRST) as u64;
        if has_tickets { offset } else { offset | NO_HEAD }
    }

    fn head(&self, lock: u64) -> Option<&Cell<u16>> {
        (lock & NO_HEAD == 0).then(|| self.heads.get(lock as usize / WORD))?
    }

    pub(crate) fn enters(&self, vcpu: usize) {
        self.vcpus[vcpu].wait.set(WaitKind::Entering);
    }

    /// Notes that the vCPU begins to wait.
    pub(crate) fn waits(&self, vcpu: usize, wait: WaitKind, lock: usize, ticket: Option<u16>) {
        let doing = &self.vcpus[vcpu];
        doing.lock.set(self.id(vcpu, lock, ticket.is_some()));
        doing.ticket.set(ticket.unwrap_or(0));
        doing.since.set(self.now.get().to_clock());
        doing.queued.set(None);
        doing.wait.set(wait);
    }

    /// As [`SharedActivity::waits`], of a vCPU that spins for a lock without tickets.
    pub(crate) fn queues(&self, vcpu: usize, lock: usize, queued: Option<Queued>) {
        self.waits(vcpu, WaitKind::Spinning, lock, None);
        self.vcpus[vcpu].queued.set(queued);
    }

    pub(crate) fn takes(&self, vcpu: usize, lock: usize, ticket: Option<u16>) {
        let doing = &self.vcpus[vcpu];
        let id = self.id(vcpu, lock, ticket.is_some());
        if let (Some(ticket), Some(head)) = (ticket, self.head(id)) {
            head.set(ticket);
        }
        doing.held_lock.set(id);
        doing.held_ticket.set(ticket);
        doing.holds.set(true);
        doing.wait.set(WaitKind::Nothing);
    }

    pub(crate) fn releases(&self, vcpu: usize) {
        let doing = &self.vcpus[vcpu];
        doing.holds.set(false);
        let head = self.head(doing.held_lock.get());
        if let (Some(ticket), Some(head)) = (doing.held_ticket.get(), head) {
            head.set(ticket.wrapping_add(INC));
        }
    }

    /// Does `vcpu` have the ticket before `ticket` of the lock at `lock`?
    pub(crate) fn is_before(&self, vcpu: usize, lock: usize, ticket: u16) -> bool {
        let (id, before) = (self.id(vcpu, lock, true), ticket.wrapping_sub(INC));
        let doing = &self.vcpus[vcpu];
        match doing.wait.get() {
            WaitKind::Spinning | WaitKind::Halted => {
                doing.lock.get() == id && doing.ticket.get() == before
            }
            _ => {
                let held = (doing.held_lock.get(), doing.held_ticket.get());
                doing.holds.get() && held == (id, Some(before))
            }
        }
    }

    /// What `vcpu` does with locks. `is_drawn`: it has made at least one step since it entered. `place` asks the lock of
    /// this number where a waiter stands.
    pub(crate) fn activity(
        &self,
        vcpu: usize,
        is_drawn: bool,
        place: impl FnOnce(usize, Queued) -> Option<u16>,
    ) -> LockActivity {
        let doing = &self.vcpus[vcpu];
        if doing.holds.get() {
            return LockActivity::Holding { lock: Some(LockId(doing.held_lock.get())), depth: 1 };
        }
        let (lock, ticket, since) = (doing.lock.get(), doing.ticket.get(), doing.since.get());
        match doing.wait.get() {
            WaitKind::Nothing => LockActivity::Free,
            WaitKind::Entering if !is_drawn => LockActivity::Free,
            WaitKind::Entering => LockActivity::Entering,
            wait @ (WaitKind::Spinning | WaitKind::Halted) => {
                let in_queue = |queued| place(self.waits.lock(vcpu), queued);
                let (ticket, distance) = match (self.head(lock), doing.queued.get()) {
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
            WaitKind::Outside => LockActivity::Outside { lock: LockId(lock), queued: None, since },
            WaitKind::Kicking => LockActivity::Kicking { lock: LockId(lock), ticket },
        }
    }
}
