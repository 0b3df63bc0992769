//! What a telemetry line says, wherever it was read: in the guest's memory ([`TelemetryView`]), or in a record of the
//! BPF scheduler.
//!
//! [`TelemetryView`]: super::TelemetryView

use std::array;

use hypercalls::telemetry::{NAMED, NO_HEAD, Wait, releases_before};

use crate::guest::queued_lock::{self, QueuedWord, Rank};
use base::units::Nanos;
use sched::event::{LockActivity, LockId};

/// Low bit of a ticketlock's head: the slow-path flag.
const FLAG: u16 = 1;
/// Difference between two successive tickets.
pub(in crate::driver) const INC: u16 = 2;

/// The ticket that a lock with this word is serving.
pub(in crate::driver) const fn head(word: u32) -> u16 {
    word as u16 & !FLAG
}

/// The ticket that this word serves, and how many are out, including that one.
pub(in crate::driver) const fn queue(word: u32) -> (u16, u16) {
    let tail = (word >> 16) as u16;
    (head(word), tail.wrapping_sub(head(word)) / INC)
}

/// A vCPU's line, with the words of the locks that it names; a word that cannot be found is None. Two reads of a field
/// may differ, if the guest is running.
pub(in crate::driver) trait LineView {
    /// How many locks the vCPU holds.
    fn held(&self) -> u32;
    /// The lock that the vCPU holds at this depth, below [`NAMED`], and its ticket.
    fn held_lock(&self, depth: usize) -> (LockId, u16);
    /// The word of `lock`, which was read at this depth.
    fn held_word(&self, depth: usize, lock: LockId) -> Option<u32>;
    /// The state and the ticket of the vCPU's wait.
    fn wait(&self) -> (Wait, u16);
    /// The lock of the wait.
    fn wait_lock(&self) -> LockId;
    /// The word of `lock`, which was read as that of the wait.
    fn wait_word(&self, lock: LockId) -> Option<u32>;
    /// What the gate says at which the vCPU waits for a lock without a head; None: there is none, or it cannot be found.
    fn gate(&self) -> Option<u16>;
    /// Is the vCPU, which waits for a queued lock, the first of the queue, as the one before it has said?
    fn was_let_ahead(&self) -> bool;
    /// When the wait began; zero if that is not known.
    fn wait_since(&self) -> Nanos;
    /// Has the line named no lock yet, in a guest that may not maintain its lines? It says nothing then.
    fn is_blank(&self) -> bool;
}

/// What the vCPU did with locks when the line was read.
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
            let named = line.wait_lock();
            let (since, halted) = (line.wait_since(), wait == Wait::Halted);
            if let Some(lock) = queued_lock::address(named) {
                let rank = Rank::told(ticket, || line.was_let_ahead());
                return rank.waiting(lock, line.wait_word(named).map(QueuedWord), since, halted);
            }
            let (ticket, distance) = if named.0 & NO_HEAD != 0 {
                place_by_gate(line, named, ticket)
            } else {
                let word = line.wait_word(named);
                (ticket, word.map(|word| ticket.wrapping_sub(head(word)) / INC))
            };
            LockActivity::Waiting { lock: named, ticket, distance, since, halted }
        }
        Wait::Outside => {
            let lock = line.wait_lock();
            let queued = line.wait_word(lock).map(|word| queue(word).1);
            let since = line.wait_since();
            LockActivity::Outside { lock, queued, since }
        }
        Wait::Kicking => match queued_lock::address(line.wait_lock()) {
            Some(lock) => LockActivity::Kicking { lock, ticket: Rank::from_raw(ticket).ticket() },
            None => LockActivity::Kicking { lock: line.wait_lock(), ticket },
        },
    }
}

/// What stands for the ticket of a waiter called `name`, and the releases until it is served, if the lock tells.
fn place_by_gate(line: &impl LineView, named: LockId, name: u16) -> (u16, Option<u16>) {
    let word = || line.wait_word(LockId(named.0 & !NO_HEAD));
    let releases = line.gate().and_then(|gate| Some(releases_before(name, word()?, gate)));
    let rank = match releases {
        None => return (0, None),
        Some(0 | 1) => Rank::Head,
        Some(_) => Rank::Behind,
    };
    (rank.ticket(), releases)
}

/// Those of the vCPU's `held` locks that are still held: a preemption may fall between the release of
/// the innermost lock and the store that publishes it.
pub(super) fn holding(line: &impl LineView, held: u32) -> Option<LockActivity> {
    let depth = held.checked_sub(1)?;
    let ix = usize::try_from(depth).unwrap_or(usize::MAX);
    let lock = match ix {
        0..NAMED => Some(still_held(line, ix)),
        _ => None,
    };
    if lock == Some(None) {
        return holding(line, depth);
    }
    let lock = lock.flatten();
    // A kernel that releases an outer lock first leaves a zero at its depth for a moment.
    let outer = |at| still_held(line, at).filter(|candidate| at < ix && candidate.0 != 0);
    let outer: [Option<LockId>; NAMED] = array::from_fn(outer);
    Some(if outer.iter().all(Option::is_none) {
        LockActivity::Holding { lock, depth: held }
    } else {
        LockActivity::HoldingSeveral { lock, depth: held, outer }
    })
}

/// The lock that the vCPU claims to hold at this depth, unless that lock is free or serves another ticket.
fn still_held(line: &impl LineView, depth: usize) -> Option<LockId> {
    let (named, ticket) = line.held_lock(depth);
    let is_held = |word| match queued_lock::address(named) {
        Some(_) => QueuedWord(word).is_held(),
        None => head(word) == ticket,
    };
    line.held_word(depth, named).is_none_or(is_held).then_some(plain(named))
}

/// The lock's address without the marks of its kind.
fn plain(named: LockId) -> LockId {
    queued_lock::address(named).unwrap_or(named)
}

/// What a vCPU that was stopped at `now` while it drew a ticket of `lock` has done. `left` are the tickets that are
/// out and that no other vCPU claims, as bits from `head` on. `None`: more than one is left, or one is left but not
/// all claims are known.
pub(in crate::driver) fn drawn_ticket(
    lock: LockId,
    head: u16,
    left: u128,
    all_claims_known: bool,
    now: Nanos,
) -> Option<LockActivity> {
    if left == 0 {
        return Some(LockActivity::Free);
    }
    if !all_claims_known || !left.is_power_of_two() {
        return None;
    }
    let distance = left.trailing_zeros() as u16;
    Some(match distance {
        0 => LockActivity::Holding { lock: Some(lock), depth: 1 },
        _ => LockActivity::Waiting {
            lock,
            ticket: head.wrapping_add(distance.wrapping_mul(INC)),
            distance: Some(distance),
            // The vCPU drew the ticket just now.
            since: now,
            halted: false,
        },
    })
}
