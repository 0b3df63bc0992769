//! The word of one of mainline Linux's queued spinlocks (`struct qspinlock`, asm-generic/qspinlock_types.h).

use hypercalls::telemetry::{
    QUEUED_HEAD, QUEUED_JOINING, QUEUED_LOCK, QUEUED_PENDING, QUEUED_PV_HEAD,
};

use base::units::Nanos;
use sched::event::{LockActivity, LockId};

/// What the word says: its byte 0 is the owner, bit 8 is set while a waiter that is not in the queue is next, bits
/// 31-16 are the last of the queue (with fewer than 16384 CPUs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedWord(pub u32);

impl QueuedWord {
    /// Has the lock an owner?
    pub const fn is_held(self) -> bool {
        self.0 & 0xff != 0
    }

    /// Is a waiter next that is not in the queue, or the first of a PV lock's queue that lets no other CPU steal
    /// the lock?
    pub const fn has_pending(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// Is a CPU in the queue?
    pub const fn has_queue(self) -> bool {
        self.tail() != 0
    }

    /// The last of the queue; 0: there is none.
    pub const fn tail(self) -> u32 {
        self.0 >> 16
    }

    /// The tail if node `ix` of this CPU is the last one.
    pub const fn tail_of(cpu: u32, ix: u32) -> u32 {
        (cpu + 1) << 2 | ix
    }

    /// Is a node of this CPU the last one of the queue?
    pub const fn ends_with(self, cpu: u32) -> bool {
        self.tail() >> 2 == cpu + 1
    }

    /// May it be the word of a queued lock that is held or awaited, in a machine of so many CPUs? A word of something
    /// else hardly looks so.
    pub const fn looks_used(self, cpus: u32) -> bool {
        let is_owner = matches!(self.0 & 0xff, 0 | 1 | 3) && self.0 & 0xfe00 == 0;
        self.0 != 0 && is_owner && self.tail() >> 2 <= cpus
    }
}

/// The place of a waiter before a queued lock, as far as its kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Has set the pending bit, which only it clears: it is next.
    Pending,
    /// The first of a PV lock's queue: it is next, and may set the pending bit.
    PvHead,
    /// The first of the queue: next after the one that is pending, if one is.
    Head,
    /// Behind these, or about to join the queue.
    Behind,
    /// Has not decided yet to join the queue: it may just have set the pending bit, or have taken the lock out of
    /// turn. With test-and-set locks, every waiter.
    Joining,
}

impl Rank {
    /// As a telemetry line has it in the place of a ticket. What is not known is behind.
    pub const fn from_raw(raw: u16) -> Self {
        match raw {
            QUEUED_PENDING => Self::Pending,
            QUEUED_PV_HEAD => Self::PvHead,
            QUEUED_HEAD => Self::Head,
            QUEUED_JOINING => Self::Joining,
            _ => Self::Behind,
        }
    }

    /// As [`Rank::from_raw`], of a waiter that may have been let to the front of the queue and not have noticed yet.
    pub fn told(raw: u16, was_let_ahead: impl FnOnce() -> bool) -> Self {
        match Self::from_raw(raw) {
            Self::Behind if was_let_ahead() => Self::Head,
            rank => rank,
        }
    }

    /// What a waiter of this rank does, whose lock has this word. `since`: when the wait began.
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

    /// Stands for a ticket: that of a waiter which is served earlier is lower. Odd, unlike those of ticketlocks: several
    /// waiters may have the same, and none can be calculated from another.
    pub const fn ticket(self) -> u16 {
        match self {
            Self::Pending | Self::PvHead => 1,
            Self::Head => 3,
            Self::Behind | Self::Joining => 5,
        }
    }

    /// Releases until the waiter is served, at least; None if that cannot be told from the second in line.
    pub fn distance(self, word: Option<QueuedWord>) -> Option<u16> {
        let held = word.map(|word| u16::from(word.is_held()));
        let pending = word.map(|word| u16::from(word.has_pending()));
        match self {
            Self::Pending | Self::PvHead => Some(held.unwrap_or(1)),
            Self::Head => Some(held? + pending?),
            // It may take the lock out of turn.
            Self::Joining if !word?.has_pending() => None,
            Self::Behind | Self::Joining => {
                Some(1 + held? + pending?).filter(|releases| *releases > 1)
            }
        }
    }

    /// May the waiter own a lock with this word, and not have said so yet?
    pub const fn may_own(self, word: QueuedWord) -> bool {
        match self {
            Self::Pending | Self::Head => word.is_held() && !word.has_pending(),
            Self::PvHead | Self::Joining => word.is_held(),
            Self::Behind => false,
        }
    }
}

/// The address of a queued lock that is named `lock` in a telemetry line; None: it is another kind of lock.
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
        let all = |word: QueuedWord| (word.is_held(), word.has_pending(), word.has_queue());
        assert_eq!(all(FREE), (false, false, false));
        assert_eq!(all(PENDING), (true, true, false));
        assert_eq!(all(SLEEPS), (true, false, true));
        assert_eq!(all(QueuedWord(0x4_0100)), (false, true, true));
    }

    /// The states of the diagram in kernel/locking/qspinlock.c, from the last in line to the first.
    #[test]
    fn the_distance_is_the_releases_until_a_waiter_is_served() {
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
    fn a_waiter_whose_pending_bit_is_gone_owns_the_lock() {
        assert!(Rank::Pending.may_own(HELD) && Rank::Pending.may_own(QUEUE));
        assert!(!Rank::Pending.may_own(PENDING) && !Rank::Pending.may_own(FREE));
        assert!(Rank::PvHead.may_own(SLEEPS) && !Rank::Behind.may_own(QUEUE));
        assert!(Rank::Joining.may_own(QUEUE), "it may have stolen it");
    }

    #[test]
    fn a_word_of_something_else_does_not_look_like_a_lock() {
        assert!(SLEEPS.looks_used(1) && QueuedWord(0x12_0101).looks_used(4) && HELD.looks_used(1));
        assert_eq!(QueuedWord(0x12_0101).tail(), QueuedWord::tail_of(3, 2));
        let others = [FREE, QueuedWord(0x14_0001), QueuedWord(0x4_0002), QueuedWord(0x4_0201)];
        for other in others {
            assert!(!other.looks_used(4), "{other:?}");
        }
    }

    #[test]
    fn a_marked_address_is_that_of_a_queued_lock() {
        assert_eq!(address(LockId(0x1003)), Some(LockId(0x1000)));
        for other in [0x1000, 0x1001, 0x1002] {
            assert_eq!(address(LockId(other)), None);
        }
        assert_eq!(Rank::from_raw(QUEUED_HEAD), Rank::Head);
        assert_eq!(Rank::from_raw(77), Rank::Behind);
    }
}
