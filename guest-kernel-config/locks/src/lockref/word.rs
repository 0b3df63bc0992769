//! The word of a lockref: a count and a ticketlock in 64 bits.
//!
//! From the top: tail, head and flag, count. The tail's carry drops out at the top. Head and count
//! are changed only by a CPU with exclusive write access, which knows their values, or in a
//! compare-exchange of the whole word. No access is smaller than the word.

use crate::sync::{AtomicU64, Ordering};
use crate::ticket::{INC, SLOWPATH};

const TAIL: u32 = 48;
const HEAD: u32 = 32;
const FLAG: u64 = (SLOWPATH as u64) << HEAD;

#[derive(Debug)]
pub(super) struct Word(AtomicU64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Snapshot(u64);

impl Snapshot {
    pub(super) const fn count(self) -> i32 {
        self.0 as u32 as i32
    }

    pub(super) const fn with_count(self, count: i32) -> Self {
        Self(self.0 & !(u32::MAX as u64) | count as u32 as u64)
    }

    /// The ticket that holds the lock, or would hold it if the lock were taken.
    pub(super) const fn served(self) -> u16 {
        (self.0 >> HEAD) as u16 & !SLOWPATH
    }

    fn is_flagged(self) -> bool {
        self.0 & FLAG != 0
    }

    const fn tail(self) -> u16 {
        (self.0 >> TAIL) as u16
    }

    pub(super) const fn is_locked(self) -> bool {
        self.served() != self.tail()
    }
}

impl Word {
    /// Creates a word with this count and a free lock.
    pub(super) const fn new(count: i32) -> Self {
        Self(AtomicU64::new(count as u32 as u64))
    }

    #[cfg(test)]
    pub(super) fn starting_at(ticket: u16, count: i32) -> Self {
        let tickets = u64::from(ticket) << TAIL | u64::from(ticket) << HEAD;
        Self(AtomicU64::new(Snapshot(tickets).with_count(count).0))
    }

    pub(super) fn load(&self, order: Ordering) -> Snapshot {
        Snapshot(self.0.load(order))
    }

    /// Acquire and release: the CPU that drops the last reference sees the earlier writes of the
    /// others.
    pub(super) fn exchange(&self, from: Snapshot, to: Snapshot) -> Result<(), Snapshot> {
        let result = self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        result.map(|_| ()).map_err(Snapshot)
    }

    /// Joins the queue; returns the caller's ticket.
    pub(super) fn take_ticket(&self) -> u16 {
        // The holder's loads acquire, and `set_flag` is the full barrier.
        Snapshot(self.0.fetch_add(u64::from(INC) << TAIL, Ordering::AcqRel)).tail()
    }

    /// Asks the holder to look for waiters: a full barrier. Returns the previous word.
    pub(super) fn set_flag(&self) -> Snapshot {
        Snapshot(self.0.fetch_or(FLAG, Ordering::SeqCst))
    }

    /// Clears the holder's flag if no CPU queues behind it: in one step of the whole word, which
    /// fails if a CPU joins first.
    pub(super) fn clear_flag_if_alone(&self, value: Snapshot) {
        if value.is_flagged() && value.tail() == value.served().wrapping_add(INC) {
            let _ = self.exchange(value, Snapshot(value.0 & !FLAG));
        }
    }

    /// Changes the count, for the lock's holder: no other CPU changes it while the lock is held, so
    /// it still has the loaded value, and there is no carry out of it.
    pub(super) fn set_count(&self, count: i32) {
        let before = Snapshot(self.0.load(Ordering::Relaxed));
        self.0.fetch_add(before.with_count(count).0.wrapping_sub(before.0), Ordering::Relaxed);
    }

    /// Changes the count and releases the lock. Returns the previous flag, and the ticket that is
    /// served now.
    pub(super) fn release(&self, count: i32) -> (bool, u16) {
        // Neither the count nor the head changes under the holder; the flag and the tail may.
        let before = Snapshot(self.0.load(Ordering::Relaxed));
        let next = before.served().wrapping_add(INC);
        let heads = u64::from(next).wrapping_sub(u64::from(before.served())) << HEAD;
        let counts = before.with_count(count).0.wrapping_sub(before.0);
        // A full barrier, like the release of a ticketlock.
        let old = self.0.fetch_add(heads.wrapping_add(counts), Ordering::SeqCst);
        (Snapshot(old).is_flagged(), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_independent_across_wraps() {
        for count in [0, 1, -1, -128, i32::MAX, i32::MIN] {
            let word = Word::starting_at(0xfffc, count);
            let tickets = [0xfffc, 0xfffe, 0, 2];
            for ticket in tickets {
                assert_eq!(word.take_ticket(), ticket);
            }
            for (served, now) in tickets.into_iter().zip([-128, 0, -1, count]) {
                let value = word.load(Ordering::Relaxed);
                assert_eq!((value.served(), value.tail(), value.is_locked()), (served, 4, true));
                let next = served.wrapping_add(INC);
                assert_eq!(word.release(now), (false, next));
                assert_eq!(word.load(Ordering::Relaxed).count(), now);
            }
            assert!(!word.load(Ordering::Relaxed).is_locked());
        }
    }

    #[test]
    fn a_stale_flag_does_not_block_the_count() {
        let word = Word::new(1);
        word.set_flag();
        let value = word.load(Ordering::Relaxed);
        assert!(!value.is_locked());
        assert_eq!(word.exchange(value, value.with_count(2)), Ok(()));
        assert_eq!(word.exchange(value, value.with_count(3)).map_err(Snapshot::count), Err(2));
    }
}
