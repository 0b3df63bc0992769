//! The word of a mainline Linux queued spinlock (`struct qspinlock`, asm-generic/qspinlock_types.h).

use hypercalls::telemetry::{
    QUEUED_HEAD, QUEUED_JOINING, QUEUED_LOCK, QUEUED_PENDING, QUEUED_PV_HEAD,
};

use base::units::Nanos;
use sched::event::{LockActivity, LockId};

/// A lock word: byte 0 is nonzero while the lock is held, bit 8 is set while a waiter outside the queue is
/// next, and bits 31-16 are the tail of the queue (with fewer than 16384 CPUs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedWord(pub u32);

impl QueuedWord {
    /// Whether the lock is held.
    pub const fn is_held(self) -> bool {
        self.0 & 0xff != 0
    }

    /// Whether a waiter outside the queue is next, or the head of a PV lock's queue keeps other CPUs from
    /// stealing the lock.
    pub const fn has_pending(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// Whether any CPU is in the queue.
    pub const fn has_queue(self) -> bool {
        self.tail() != 0
    }

    /// The tail of the queue, or 0 if it is empty.
    pub const fn tail(self) -> u32 {
        self.0 >> 16
    }

    /// Returns the tail value for node `ix` of this CPU.
    pub const fn tail_of(cpu: u32, ix: u32) -> u32 {
        (cpu + 1) << 2 | ix
    }

    /// Whether the tail of the queue is a node of this CPU.
    pub const fn ends_with(self, cpu: u32) -> bool {
        self.tail() >> 2 == cpu + 1
    }

    /// Whether this can be the word of a held or awaited queued lock, in a machine with this number of CPUs.
    /// Unrelated words rarely pass.
    pub const fn looks_used(self, cpus: u32) -> bool {
        let is_owner = matches!(self.0 & 0xff, 0 | 1 | 3) && self.0 & 0xfe00 == 0;
        self.0 != 0 && is_owner && self.tail() >> 2 <= cpus
    }
}

/// The position of a waiter for a queued lock, as far as its kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Has set the pending bit, which only this waiter clears. It is next.
    Pending,
    /// The head of a PV lock's queue. It is next, and may set the pending bit.
    PvHead,
    /// The head of the queue. Next after a pending waiter, if any.
    Head,
    /// Behind the head, or about to join the queue.
    Behind,
    /// Has not joined the queue yet: it may just have set the pending bit, or have stolen the lock. For
    /// test-and-set locks, every waiter.
    Joining,
}

impl Rank {
    /// Converts the value in a telemetry line's ticket field. Unknown values become `Behind`.
    pub const fn from_raw(raw: u16) -> Self {
        match raw {
            QUEUED_PENDING => Self::Pending,
            QUEUED_PV_HEAD => Self::PvHead,
            QUEUED_HEAD => Self::Head,
            QUEUED_JOINING => Self::Joining,
            _ => Self::Behind,
        }
    }

    /// Like [`Rank::from_raw`], for a waiter that may be the head of the queue without having noticed it.
    pub fn with_head_check(raw: u16, is_queue_head: impl FnOnce() -> bool) -> Self {
        match Self::from_raw(raw) {
            Self::Behind if is_queue_head() => Self::Head,
            rank => rank,
        }
    }

    /// Returns the activity of a waiter with this rank. `since` is the start of the wait.
    pub fn waiting(
        self,
        lock: LockId,
        word: Option<QueuedWord>,
        since: Nanos,
        halted: bool,
    ) -> LockActivity {
        let (ticket, distance) = (self.ticket(), self.distance(word));
        LockActivity::Waiting { lock, ticket, distance, since, halted }
    }

    /// Returns the equivalent of a ticket: lower for waiters that are served earlier. Odd, unlike tickets of
    /// ticketlocks. Several waiters may have the same value, and no value can be calculated from another.
    pub const fn ticket(self) -> u16 {
        match self {
            Self::Pending | Self::PvHead => 1,
            Self::Head => 3,
            Self::Behind | Self::Joining => 5,
        }
    }

    /// Returns the minimum number of releases until the waiter is served, or None if unknown.
    pub fn distance(self, word: Option<QueuedWord>) -> Option<u16> {
        let held = word.map(|word| u16::from(word.is_held()));
        let pending = word.map(|word| u16::from(word.has_pending()));
        match self {
            Self::Pending | Self::PvHead => Some(held.unwrap_or(1)),
            Self::Head => Some(held? + pending?),
            // It may steal the lock.
            Self::Joining if !word?.has_pending() => None,
            Self::Behind | Self::Joining => {
                Some(1 + held? + pending?).filter(|releases| *releases > 1)
            }
        }
    }

    /// Whether the waiter may own a lock with this word without having published it yet.
    pub const fn may_own(self, word: QueuedWord) -> bool {
        match self {
            Self::Pending | Self::Head => word.is_held() && !word.has_pending(),
            Self::PvHead | Self::Joining => word.is_held(),
            Self::Behind => false,
        }
    }
}

/// Returns the address of the queued lock that a telemetry line names `lock`, or None for other kinds of locks.
pub fn address(lock: LockId) -> Option<LockId> {
    (lock.0 & QUEUED_LOCK == QUEUED_LOCK).then_some(LockId(lock.0 & !QUEUED_LOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: QueuedWord = QueuedWord(0);
    const HELD: QueuedWord = QueuedWord(1);
    const PENDING: QueuedWord = QueuedWord(0x101);
    const QUEUE: QueuedWord = QueuedWord(0x4_0001);
    /// A PV lock whose first waiter sleeps.
    const SLEEPS: QueuedWord = QueuedWord(0x4_0003);

    #[test]
    fn the_word_has_owner_pending_waiter_and_queue() {
        let parts = |word: QueuedWord| (word.is_held(), word.has_pending(), word.has_queue());
        assert_eq!(parts(FREE), (false, false, false));
        assert_eq!(parts(PENDING), (true, true, false));
        assert_eq!(parts(SLEEPS), (true, false, true));
        assert_eq!(parts(QueuedWord(0x4_0100)), (false, true, true));
    }

    /// The states in the diagram of kernel/locking/qspinlock.c.
    #[test]
    fn distance_is_the_number_of_releases() {
        for (word, pending, head, behind) in [
            (FREE, 0, Some(0), None),
            (QUEUE, 1, Some(1), Some(2)),
            (PENDING, 1, Some(2), Some(3)),
            (QueuedWord(0x4_0100), 0, Some(1), Some(2)),
        ] {
            assert_eq!(Rank::Pending.distance(Some(word)), Some(pending), "{word:?}");
            assert_eq!(Rank::PvHead.distance(Some(word)), Some(pending), "{word:?}");
            assert_eq!(Rank::Head.distance(Some(word)), head, "{word:?}");
            assert_eq!(Rank::Behind.distance(Some(word)), behind, "{word:?}");
        }
        assert_eq!((Rank::Pending.distance(None), Rank::Head.distance(None)), (Some(1), None));
    }

    #[test]
    fn cleared_pending_bit_means_ownership() {
        assert!(Rank::Pending.may_own(HELD) && Rank::Pending.may_own(QUEUE));
        assert!(!Rank::Pending.may_own(PENDING) && !Rank::Pending.may_own(FREE));
        assert!(Rank::PvHead.may_own(SLEEPS) && !Rank::Behind.may_own(QUEUE));
        assert!(Rank::Joining.may_own(QUEUE), "it may have stolen it");
    }

    #[test]
    fn rejects_words_that_are_not_locks() {
        assert!(SLEEPS.looks_used(1) && QueuedWord(0x12_0101).looks_used(4) && HELD.looks_used(1));
        assert_eq!(QueuedWord(0x12_0101).tail(), QueuedWord::tail_of(3, 2));
        let words = [FREE, QueuedWord(0x14_0001), QueuedWord(0x4_0002), QueuedWord(0x4_0201)];
        for word in words {
            assert!(!word.looks_used(4), "{word:?}");
        }
    }

    #[test]
    fn decodes_marked_addresses() {
        assert_eq!(address(LockId(0x1003)), Some(LockId(0x1000)));
        for unmarked in [0x1000, 0x1001, 0x1002] {
            assert_eq!(address(LockId(unmarked)), None);
        }
        assert_eq!(Rank::from_raw(QUEUED_HEAD), Rank::Head);
        assert_eq!(Rank::from_raw(77), Rank::Behind);
    }
}
