//! Decodes the lock activity of a vCPU from a record of the BPF scheduler.

use bpf::Locks;
use hypercalls::telemetry::Wait;

use crate::driver::telemetry::line::{self, LineView, drawn_ticket, queue};
use base::units::Nanos;
use sched::event::{LockActivity, LockId};

/// A vCPU's line in a record.
struct LineInRecord<'a> {
    locks: &'a Locks,
    since: Nanos,
    /// Whether the guest might not maintain its lines.
    may_be_blank: bool,
}

impl LineView for LineInRecord<'_> {
    fn held(&self) -> u32 {
        self.locks.held
    }

    fn held_lock(&self, depth: usize) -> (LockId, u16) {
        (LockId(self.locks.held_lock[depth]), self.locks.held_ticket[depth])
    }

    fn held_word(&self, depth: usize, _: LockId) -> Option<u32> {
        self.locks.held_word[depth]
    }

    fn wait(&self) -> (Wait, u16) {
        Wait::parse(self.locks.wait)
    }

    fn wait_lock(&self) -> LockId {
        LockId(self.locks.wait_lock)
    }

    fn wait_word(&self, _: LockId) -> Option<u32> {
        self.locks.wait_word
    }

    fn gate(&self) -> Option<u16> {
        self.locks.gate
    }

    fn is_queue_head(&self) -> bool {
        // The record does not include it.
        false
    }

    fn wait_since(&self) -> Nanos {
        self.since
    }

    fn is_blank(&self) -> bool {
        self.may_be_blank && self.locks.held_lock[0] == 0
    }
}

/// Returns the vCPU's lock activity. `since` is the start of its wait, or zero if unknown. `blank` means that
/// a line which has named no lock yet is invalid.
pub(super) fn activity(locks: &Locks, since: Nanos, at: Nanos, blank: bool) -> LockActivity {
    match line::activity(&LineInRecord { locks, since, may_be_blank: blank }) {
        LockActivity::Entering => drawn(locks, at).unwrap_or(LockActivity::Entering),
        known => known,
    }
}

/// Infers the ticket drawn by a vCPU that has not published it: a drawn ticket that no other vCPU claims.
/// `None` if unknown.
fn drawn(locks: &Locks, at: Nanos) -> Option<LockActivity> {
    let (word, claimed) = (locks.wait_word?, locks.claimed?);
    let (lock, (head, count)) = (LockId(locks.wait_lock), queue(word));
    // The BPF scheduler examines 64 tickets.
    let drawn = 1_u64.checked_shl(count.into()).map_or(u64::MAX, |bit| bit - 1);
    drawn_ticket(lock, head, (drawn & !claimed).into(), count <= 64, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: LockId = LockId(0xffff_8880_0000_1000);
    const AT: Nanos = Nanos(100);

    /// Returns a lock word that serves `head` and has `tail` as the next ticket to draw.
    const fn word(head: u16, tail: u16) -> Option<u32> {
        Some(head as u32 | (tail as u32) << 16)
    }

    fn decoded(locks: Locks) -> LockActivity {
        activity(&locks, Nanos(7), AT, true)
    }

    fn waiting(wait: Wait, ticket: u16, wait_word: Option<u32>) -> Locks {
        let (wait, wait_lock, held_lock) = (wait.word(ticket), LOCK.0, [1, 0, 0]);
        Locks { wait, wait_lock, wait_word, held_lock, ..Locks::default() }
    }

    #[test]
    fn a_lock_that_serves_another_ticket_is_not_held() {
        let held = Locks {
            held: 2,
            held_lock: [LOCK.0, 8, 0],
            held_ticket: [4, 6, 0],
            held_word: [word(4, 8), word(8, 8), None],
            ..Locks::default()
        };
        assert_eq!(decoded(held), LockActivity::Holding { lock: Some(LOCK), depth: 1 });
        let second_lock = Locks { held_word: [word(5, 8), None, None], ..held };
        let outer = [Some(LOCK), None, None];
        let several = LockActivity::HoldingSeveral { lock: Some(LockId(8)), depth: 2, outer };
        assert_eq!(decoded(second_lock), several, "the flag is no part of the ticket");
        let none = Locks { held_word: [word(6, 8), word(8, 8), None], ..held };
        assert_eq!(decoded(none), LockActivity::Free);
        let deep = Locks { held: 5, ..none };
        assert_eq!(decoded(deep), LockActivity::Holding { lock: None, depth: 5 });
    }

    #[test]
    fn lock_word_identifies_next_waiter() {
        let next = decoded(waiting(Wait::Spinning, 0x10, word(0xe, 0x14)));
        assert!(next.is_next(), "{next:?}");
        let behind = decoded(waiting(Wait::Spinning, 0x10, word(0xc, 0x14)));
        assert!(!behind.is_next() && behind.is_involved(), "{behind:?}");
        let wraps = decoded(waiting(Wait::Halted, 0, word(0xfffe, 2)));
        assert!(wraps.is_next(), "{wraps:?}");
        let unknown = decoded(waiting(Wait::Spinning, 0x10, None));
        assert!(!unknown.is_next() && unknown.is_involved(), "{unknown:?}");
        assert!(decoded(waiting(Wait::Throttled, 0, word(4, 4))).is_next());
        assert!(!decoded(waiting(Wait::Throttled, 0, word(4, 6))).is_next());
    }

    #[test]
    fn gate_identifies_next_waiter_without_tickets() {
        let waiting = |gate, wait_word| Locks {
            wait_lock: LOCK.0 | 1,
            gate,
            ..waiting(Wait::Spinning, 8, wait_word)
        };
        assert!(decoded(waiting(Some(0), Some(8 << 16 | 12))).is_next());
        assert!(decoded(waiting(Some(2), Some(12 << 16 | 12))).is_served());
        let behind = decoded(waiting(Some(0), Some(12 << 16 | 8)));
        assert!(!behind.is_next() && behind.is_involved(), "{behind:?}");
        for unknown in [waiting(None, Some(8 << 16)), waiting(Some(2), None)] {
            let LockActivity::Waiting { ticket: 0, distance: None, .. } = decoded(unknown) else {
                panic!("{:?}", decoded(unknown))
            };
        }
    }

    #[test]
    fn blank_lines_are_invalid_unless_always_maintained() {
        assert_eq!(decoded(Locks::default()), LockActivity::Unknown);
        assert_eq!(activity(&Locks::default(), AT, AT, false), LockActivity::Free);
    }

    #[test]
    fn recorded_unclaimed_ticket_belongs_to_its_drawer() {
        let entering = |claimed, wait_word| {
            decoded(Locks { claimed, ..waiting(Wait::Entering, 0, wait_word) })
        };
        // Three tickets are drawn, and other vCPUs have some of them.
        let word = word(10, 16);
        assert_eq!(entering(Some(0b111), word), LockActivity::Free, "it has drawn none");
        let holds = LockActivity::Holding { lock: Some(LOCK), depth: 1 };
        assert_eq!(entering(Some(0b110), word), holds);
        let LockActivity::Waiting { ticket: 14, distance: Some(2), since: AT, .. } =
            entering(Some(0b011), word)
        else {
            panic!("{:?}", entering(Some(0b011), word))
        };
        assert_eq!(entering(Some(0b001), word), LockActivity::Entering, "two are left");
        assert_eq!(entering(None, word), LockActivity::Entering);
        assert_eq!(entering(Some(0b110), None), LockActivity::Entering);
    }
}
