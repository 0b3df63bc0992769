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
/// Reported as the ticket of a waiter in a lock without tickets: next in line, and behind others. Odd.
const NEXT: u16 = 3;
const BEHIND: u16 = 5;
/// Smallest id of a lock. Zero means no lock.
const FIRST: usize = 64;
/// Size of the words that contain heads.
const WORD: usize = 4;

/// The kind of a vCPU's wait.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitKind {
    #[default]
    Nothing,
    /// The vCPU draws a ticket, or checks whether the lock is free.
    Entering,
    Spinning,
    Halted,
    Outside,
    Kicking,
}

/// The lock activity of a vCPU, and its counters.
#[derive(Debug, Default)]
pub(crate) struct Doing {
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
    /// Whether the schedule has asked it to yield.
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

/// State shared by the vCPUs and their machine, in addition to the simulated memory.
#[derive(Debug)]
pub(crate) struct SharedActivity {
    /// Time of the running vCPU.
    now: Cell<Picos>,
    is_over: Cell<bool>,
    pub(crate) operations: Cell<u64>,
    pub(crate) waits: WaitCounter,
    /// Mask of the points that vCPUs report.
    pub(crate) points: Cell<u32>,
    pub(crate) spin_looks: u32,
    /// Per vCPU: base address of its guest's memory if this guest were the first.
    bases: Box<[usize]>,
    vcpus: Box<[Doing]>,
    /// The served ticket, by the offset of a lock's word.
    heads: Box<[Cell<u16>]>,
}

impl SharedActivity {
    /// For vCPUs with these `bases` and `locks` locks each, in guests with a total of `size` bytes of
    /// memory.
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

    /// Sets the time of the vCPU that runs next.
    #[inline(always)]
    pub(crate) fn set_now(&self, now: Picos) {
        self.now.set(now);
    }

    /// Time of the running vCPU.
    #[inline(always)]
    pub(crate) fn now(&self) -> Picos {
        self.now.get()
    }

    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Makes every vCPU end after its operation.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
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

    pub(crate) fn enters(&self, vcpu: usize) {
        self.vcpus[vcpu].wait.set(WaitKind::Entering);
    }

    /// Records that the vCPU starts to wait.
    pub(crate) fn waits(&self, vcpu: usize, wait: WaitKind, lock: usize, ticket: Option<u16>) {
        let doing = &self.vcpus[vcpu];
        doing.lock.set(self.id(vcpu, lock, ticket.is_some()));
        doing.ticket.set(ticket.unwrap_or(0));
        doing.since.set(self.now.get().to_clock());
        doing.queued.set(None);
        doing.wait.set(wait);
    }

    /// Like [`SharedActivity::waits`], for a vCPU that spins for a lock without tickets.
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

    /// Whether `vcpu` has the ticket before `ticket` of the lock at `lock`.
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

    /// The lock activity of `vcpu`. `is_drawn`: whether it has made at least one step since it entered.
    /// `place` returns a waiter's position in the queue of the lock with this index.
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
