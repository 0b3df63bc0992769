//! Decodes a telemetry line, whether read from the guest's memory ([`TelemetryView`]) or from a record of the
//! BPF scheduler.
//!
//! [`TelemetryView`]: super::TelemetryView

use std::array;

use hypercalls::telemetry::{MAX_NAMED, NO_HEAD, Wait, releases_before};

use crate::guest::queued_lock::{self, QueuedWord, Rank};
use base::units::Nanos;
use sched::event::{LockActivity, LockId};

/// Low bit of a ticketlock's head: the slow-path flag.
const FLAG: u16 = 1;
/// Difference between two consecutive tickets.
pub(in crate::driver) const INC: u16 = 2;

/// Returns the ticket being served by a lock with this word.
pub(in crate::driver) const fn head(word: u32) -> u16 {
    word as u16 & !FLAG
}

/// Returns the ticket being served, and the number of unreleased tickets including it.
pub(in crate::driver) const fn queue(word: u32) -> (u16, u16) {
    let tail = (word >> 16) as u16;
    (head(word), tail.wrapping_sub(head(word)) / INC)
}

/// A vCPU's line, with the words of the locks that it names. A word is None if it cannot be found. Two reads
/// of a field may differ if the guest is running.
pub(in crate::driver) trait LineView {
    /// Number of locks that the vCPU holds.
    fn held(&self) -> u32;
    /// The lock held at this depth, below [`MAX_NAMED`], and its ticket.
    fn held_lock(&self, depth: usize) -> (LockId, u16);
    /// The word of `lock`, the lock read at this depth.
    fn held_word(&self, depth: usize, lock: LockId) -> Option<u32>;
    /// The state and the ticket of the vCPU's wait.
    fn wait(&self) -> (Wait, u16);
    fn wait_lock(&self) -> LockId;
    /// The word of `lock`, read by `wait_lock`.
    fn wait_word(&self, lock: LockId) -> Option<u32>;
    /// The gate: the 16-bit word that a waiter for a lock without a head polls. None if unreadable.
    fn gate(&self) -> Option<u16>;
    /// Whether the vCPU, a waiter for a queued lock, is the head of the queue according to its predecessor.
    fn is_queue_head(&self) -> bool;
    /// Start time of the wait, or zero if unknown.
    fn wait_since(&self) -> Nanos;
    /// Whether the line of a guest that might not maintain its lines has named no lock yet, and is invalid.
    fn is_blank(&self) -> bool;
}

pub(in crate::driver) fn activity(line: &impl LineView) -> LockActivity {
    if let Some(holding) = holding(line, line.held()) {
        return holding;
    }
    let (wait, ticket) = line.wait();
    match wait {
        Wait::Nothing if line.is_blank() => LockActivity::Unknown,
        Wait::Nothing => LockActivity::Free,
        Wait::Entering => LockActivity::Entering,
        Wait::Spinning | Wait::Halted => {
            let name = line.wait_lock();
            let (since, halted) = (line.wait_since(), wait == Wait::Halted);
            if let Some(lock) = queued_lock::address(name) {
                let rank = Rank::with_head_check(ticket, || line.is_queue_head());
                return rank.waiting(lock, line.wait_word(name).map(QueuedWord), since, halted);
            }
            let (ticket, distance) = if name.0 & NO_HEAD != 0 {
                place_by_gate(line, name, ticket)
            } else {
                let word = line.wait_word(name);
                (ticket, word.map(|word| ticket.wrapping_sub(head(word)) / INC))
            };
            LockActivity::Waiting { lock: name, ticket, distance, since, halted }
        }
        Wait::Throttled => {
            let lock = line.wait_lock();
            let queued = line.wait_word(lock).map(|word| queue(word).1);
            let since = line.wait_since();
            LockActivity::Throttled { lock, queued, since }
        }
        Wait::Kicking => match queued_lock::address(line.wait_lock()) {
            Some(lock) => LockActivity::Kicking { lock, ticket: Rank::from_raw(ticket).ticket() },
            None => LockActivity::Kicking { lock: line.wait_lock(), ticket },
        },
    }
}

/// Returns the ticket equivalent for a waiter called `name`, and the releases until it is served, if known.
fn place_by_gate(line: &impl LineView, lock: LockId, name: u16) -> (u16, Option<u16>) {
    let word = || line.wait_word(LockId(lock.0 & !NO_HEAD));
    let releases = line.gate().and_then(|gate| Some(releases_before(name, word()?, gate)));
    let rank = match releases {
        None => return (0, None),
        Some(0 | 1) => Rank::Head,
        Some(_) => Rank::Behind,
    };
    (rank.ticket(), releases)
}

/// Returns the activity of a vCPU whose line shows `held` locks; None if all are released. A preemption may
/// fall between the release of the innermost lock and the store that publishes it.
pub(super) fn holding(line: &impl LineView, held: u32) -> Option<LockActivity> {
    let depth = held.checked_sub(1)?;
    let ix = usize::try_from(depth).unwrap_or(usize::MAX);
    let lock = match ix {
        0..MAX_NAMED => Some(still_held(line, ix)),
        _ => None,
    };
    if lock == Some(None) {
        return holding(line, depth);
    }
    let lock = lock.flatten();
    // A kernel that releases an outer lock first leaves a zero at its depth for a moment.
    let outer = |at| still_held(line, at).filter(|candidate| at < ix && candidate.0 != 0);
    let outer: [Option<LockId>; MAX_NAMED] = array::from_fn(outer);
    Some(if outer.iter().all(Option::is_none) {
        LockActivity::Holding { lock, depth: held }
    } else {
        LockActivity::HoldingSeveral { lock, depth: held, outer }
    })
}

/// Returns the lock that the vCPU claims to hold at this depth, unless it is free or serves another ticket.
fn still_held(line: &impl LineView, depth: usize) -> Option<LockId> {
    let (name, ticket) = line.held_lock(depth);
    let is_held = |word| match queued_lock::address(name) {
        Some(_) => QueuedWord(word).is_held(),
        None => head(word) == ticket,
    };
    line.held_word(depth, name).is_none_or(is_held).then_some(address_of(name))
}

/// Returns the lock's address without the tag bits of its kind.
fn address_of(name: LockId) -> LockId {
    queued_lock::address(name).unwrap_or(name)
}

/// Infers the result for a vCPU stopped at `now` while drawing a ticket of `lock`. `unclaimed` are the drawn
/// tickets that no other vCPU claims, as bits starting at `head`. `None` if more than one is left, or if one
/// is left but not all claims are known.
pub(in crate::driver) fn drawn_ticket(
    lock: LockId,
    head: u16,
    unclaimed: u128,
    all_claims_known: bool,
    now: Nanos,
) -> Option<LockActivity> {
    if unclaimed == 0 {
        return Some(LockActivity::Free);
    }
    if !all_claims_known || !unclaimed.is_power_of_two() {
        return None;
    }
    let distance = unclaimed.trailing_zeros() as u16;
    Some(match distance {
        0 => LockActivity::Holding { lock: Some(lock), depth: 1 },
        _ => LockActivity::Waiting {
            lock,
            ticket: head.wrapping_add(distance.wrapping_mul(INC)),
            distance: Some(distance),
            // The ticket was drawn just now.
            since: now,
            halted: false,
        },
    })
}
