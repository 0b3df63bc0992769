//! vCPUs stopped while acquiring a queued lock or waiting for one.
//!
//! A processor takes an interrupt right after a locked instruction, before the stores that publish its
//! effect. Stops cluster there. The effect then follows from the lock word and the other vCPUs' lines.

use std::{mem::offset_of, sync::atomic::Ordering::Acquire};

use hypercalls::telemetry::{Line, MAX_NAMED, Wait};
use vm_memory::{Bytes, GuestAddress};

use super::{LineInMemory, TelemetryView, line};
use crate::guest::queued_lock::{self, QueuedWord, Rank};
use base::units::{Nanos, VcpuId};
use sched::event::{LockActivity, LockId};

/// Claims to one lock, according to telemetry lines.
#[derive(Debug, Default, Clone, Copy)]
struct Claims {
    /// Whether a vCPU holds the lock.
    owns: bool,
    /// The lock may have just been acquired, or be one of the held locks that the line does not name.
    may_own: bool,
    /// The rank of a waiter.
    rank: Option<Rank>,
    /// Whether the vCPU is in the queue.
    is_queued: bool,
}

impl Claims {
    fn add(&mut self, other: Self) {
        self.owns |= other.owns;
        self.may_own |= other.may_own;
        self.is_queued |= other.is_queued;
        self.rank = match (self.rank, other.rank) {
            // Waiters that may have set the pending bit.
            (Some(Rank::Pending | Rank::PvHead), _) | (_, Some(Rank::Pending | Rank::PvHead)) => {
                Some(Rank::Pending)
            }
            (Some(Rank::Joining), _) | (_, Some(Rank::Joining)) => Some(Rank::Joining),
            (rank, other) => rank.or(other),
        };
    }
}

impl TelemetryView {
    /// Returns the activity of a stopped vCPU whose line shows `activity`: it acquires the queued lock of this
    /// name, or waits for it. The result stays unresolved if another vCPU may be doing the same at this moment.
    pub(super) fn stopped_at_queued(
        &self,
        vcpu: VcpuId,
        name: LockId,
        lock: LockId,
        peers: impl Iterator<Item = VcpuId> + Clone,
        activity: LockActivity,
    ) -> LockActivity {
        let Some(word) = self.word(name).map(QueuedWord) else { return activity };
        let own_claims = self.claims(vcpu, name, word);
        let all_claims = || {
            let mut claims = Claims::default();
            peers.clone().for_each(|peer| claims.add(self.claims(peer, name, word)));
            claims
        };
        let peer_claims = all_claims();
        // A running owner may have released the lock in between, and another vCPU may have acquired it.
        let recheck = all_claims();
        let is_steady = (peer_claims.owns, peer_claims.may_own) == (recheck.owns, recheck.may_own);
        if self.word(name) != Some(word.0) || !is_steady {
            return activity;
        }
        if own_claims.may_own && word.is_held() && !peer_claims.owns {
            if peer_claims.may_own {
                return activity;
            }
            let held: u32 = self.load(vcpu, offset_of!(Line, held));
            return LockActivity::Holding { lock: Some(lock), depth: held.saturating_add(1) };
        }
        let LockActivity::Waiting { since, halted, .. } = activity else {
            return LockActivity::Free;
        };
        let rank = match own_claims.rank {
            Some(Rank::Joining) if word.has_pending() => match peer_claims.rank {
                Some(Rank::Pending) => Rank::Behind,
                Some(Rank::Joining) => return LockActivity::Entering,
                _ => Rank::Pending,
            },
            Some(Rank::Behind) if word.ends_with(vcpu.0) && !peer_claims.is_queued => Rank::Head,
            _ => return activity,
        };
        rank.waiting(lock, Some(word), since, halted)
    }

    /// Returns the activity of a stopped vCPU whose line shows that it holds a lock. If another vCPU also claims
    /// the innermost lock, a queued lock, one of the two has just released it. The outer locks stay held.
    pub(super) fn stopped_with_queued(
        &self,
        vcpu: VcpuId,
        mut peers: impl Iterator<Item = VcpuId>,
        activity: LockActivity,
        now: Nanos,
    ) -> LockActivity {
        let held: u32 = self.load(vcpu, offset_of!(Line, held));
        let depth = (held as usize).checked_sub(1).filter(|depth| *depth < MAX_NAMED);
        let Some(depth) = depth else { return activity };
        let name = LockId(self.load(vcpu, offset_of!(Line, held_lock) + depth * 8));
        let Some(lock) = queued_lock::address(name) else { return activity };
        let Some(word) = self.word(name).map(QueuedWord) else { return activity };
        if !peers.any(|peer| self.claims(peer, name, word).owns) {
            return activity;
        }
        let line = LineInMemory { lines: self, vcpu, now };
        if let Some(outer) = line::holding(&line, held - 1) {
            return outer;
        }
        match Wait::parse(self.load(vcpu, offset_of!(Line, wait))).0 {
            Wait::Kicking => LockActivity::Kicking { lock, ticket: Rank::Pending.ticket() },
            _ => LockActivity::Entering,
        }
    }

    /// Returns the claims in a vCPU's line to the queued lock of this name, with this word.
    fn claims(&self, vcpu: VcpuId, name: LockId, word: QueuedWord) -> Claims {
        // Read before the held locks: a waiter publishes that it holds the lock before it withdraws its wait.
        let (wait, raw) = Wait::parse(self.load(vcpu, offset_of!(Line, wait)));
        let wait_lock: u64 = self.load(vcpu, offset_of!(Line, wait_lock));
        let held: u32 = self.load(vcpu, offset_of!(Line, held));
        let named_locks = (held as usize).min(MAX_NAMED);
        let held_lock = |depth| self.load::<u64>(vcpu, offset_of!(Line, held_lock) + depth * 8);
        let is_waiting = matches!(wait, Wait::Spinning | Wait::Halted) && wait_lock == name.0;
        let rank = is_waiting.then(|| Rank::with_head_check(raw, || self.is_queue_head(vcpu)));
        let is_entering = wait == Wait::Entering && wait_lock == name.0;
        let takes = is_entering || rank.is_some_and(|rank| rank.may_own(word));
        Claims {
            owns: (0..named_locks).map(held_lock).any(|lock| lock == name.0),
            may_own: takes || held as usize > MAX_NAMED,
            rank,
            is_queued: matches!(rank, Some(Rank::PvHead | Rank::Head | Rank::Behind)),
        }
    }

    /// Whether a waiter in the queue of a queued lock is its head, according to its predecessor.
    pub(super) fn is_queue_head(&self, vcpu: VcpuId) -> bool {
        /// Offset of `locked` in `struct mcs_spinlock`.
        const LOCKED: u64 = 8;
        let node: u64 = self.load(vcpu, offset_of!(Line, queue_node));
        let at = (self.translate)(node).filter(|at| at.0.is_multiple_of(8));
        let at = at.and_then(|at| at.0.checked_add(LOCKED));
        let locked = at.and_then(|at| self.memory.load(GuestAddress(at), Acquire).ok());
        locked.is_some_and(|locked: u32| locked != 0)
    }
}
