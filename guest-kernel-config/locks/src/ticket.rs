//! The lock word: two 16-bit tickets side by side.
//!
//! They are two atomics and not one of 32 bits: a native release is a plain,
//! unlocked add to the head alone, and Rust's memory model leaves accesses of
//! different sizes to the same bytes undefined. What a 32-bit compare-exchange
//! would give (clear the flag if nobody queues) is done by an order of steps
//! instead, see [`TicketWord::clear_flag_if_alone`].

use crate::sync::{AtomicU16, Ordering};

/// Distance between two tickets. Two, so that the head's low bit is free.
pub(crate) const INC: u16 = 2;

/// Low bit of the head: a waiter has halted, or is about to.
pub(crate) const SLOWPATH: u16 = 1;

/// Head and tail of a ticketlock, four bytes.
#[derive(Debug, Default)]
#[repr(C, align(4))]
pub(crate) struct TicketWord {
    head: AtomicU16,
    tail: AtomicU16,
}

// A watcher is told a lock's address and finds the head there.
const _: () = assert!(core::mem::offset_of!(TicketWord, head) == 0);

/// The head as somebody saw it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head(u16);

impl Head {
    /// The ticket that is served.
    pub(crate) fn ticket(self) -> u16 {
        self.0 & !SLOWPATH
    }

    /// Did a waiter halt?
    pub(crate) fn flagged(self) -> bool {
        self.0 & SLOWPATH != 0
    }
}

impl TicketWord {
    /// A free lock.
    pub(crate) const fn new() -> Self {
        Self { head: AtomicU16::new(0), tail: AtomicU16::new(0) }
    }

    /// A free lock whose next ticket is `ticket`.
    #[cfg(test)]
    pub(crate) const fn starting_at(ticket: u16) -> Self {
        Self { head: AtomicU16::new(ticket), tail: AtomicU16::new(ticket) }
    }

    /// Joins the queue: the caller's own ticket.
    #[inline]
    pub(crate) fn take_ticket(&self) -> u16 {
        self.tail.fetch_add(INC, Ordering::SeqCst)
    }

    /// The head now. Seeing one's own ticket in it is holding the lock.
    #[inline]
    pub(crate) fn head(&self) -> Head {
        Head(self.head.load(Ordering::Acquire))
    }

    /// Waits until the lock was free at some moment: until whoever holds it now has released it.
    ///
    /// Not until nobody queues: others that take the lock in turn may never leave it so.
    pub(crate) fn wait_until_released(&self, mut look_again: impl FnMut()) {
        let first = self.head();
        while self.queued(first) > 0 && self.head().ticket() == first.ticket() {
            look_again();
        }
    }

    /// Releases with a plain add. Only for locks whose head nobody but the
    /// holder ever writes: a flag set in between would be lost.
    #[inline]
    pub(crate) fn release_plain(&self) {
        let head = self.head.load(Ordering::Relaxed);
        self.head.store(head.wrapping_add(INC), Ordering::Release);
    }

    /// Releases with one atomic add, a full barrier, and returns the head it
    /// released with the flag as it was. From here on the lock may be freed
    /// memory to the caller.
    #[inline]
    pub(crate) fn release_fetch(&self) -> Head {
        Head(self.head.fetch_add(INC, Ordering::SeqCst))
    }

    /// Asks the releaser to look for waiters. A full barrier: what the caller
    /// published before is visible to whoever sees the flag, and a look at the
    /// head that follows is not older.
    ///
    /// Gives the head that was flagged: while it is served, its holder's release is
    /// still to come.
    pub(crate) fn set_flag(&self) -> Head {
        Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))
    }

    /// CPUs in the queue whose holder has ticket `served`, the holder included.
    #[inline]
    pub(crate) fn queued(&self, served: Head) -> u16 {
        self.tail.load(Ordering::SeqCst).wrapping_sub(served.ticket()) / INC
    }

    /// The holder of `ticket` clears the flag when nobody queues behind it, nor
    /// stands outside (`is_awaited`).
    ///
    /// A waiter may queue and set the flag between the look and the
    /// clearing. It took its ticket before, so the second look sees it, and the
    /// flag is put back while the caller still holds the lock: every release
    /// that waiter waits for comes after. The same goes for who stands outside.
    #[cold]
    pub(crate) fn clear_flag_if_alone(&self, ticket: u16, is_awaited: impl Fn() -> bool) {
        let alone = ticket.wrapping_add(INC);
        let is_alone = || self.tail.load(Ordering::SeqCst) == alone && !is_awaited();
        if !is_alone() {
            return;
        }
        self.head.fetch_and(!SLOWPATH, Ordering::SeqCst);
        if !is_alone() {
            self.head.fetch_or(SLOWPATH, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_advance_by_two_and_wrap_without_touching_each_other() {
        let word = TicketWord::starting_at(0xfffe);
        assert_eq!(word.take_ticket(), 0xfffe);
        assert_eq!(word.head().ticket(), 0xfffe);
        assert_eq!(word.take_ticket(), 0);
        assert_eq!(word.release_fetch().ticket(), 0xfffe);
        assert_eq!(word.head().ticket(), 0);
        word.release_plain();
        assert_eq!(word.head().ticket(), 2);
        assert_eq!(word.take_ticket(), 2);
    }

    #[test]
    fn release_returns_the_flag_and_leaves_it_to_the_next_holder() {
        let word = TicketWord::new();
        let first = word.take_ticket();
        let second = word.take_ticket();
        word.set_flag();
        word.set_flag();
        assert!(word.head().flagged());
        assert_eq!(word.head().ticket(), first);
        let released = word.release_fetch();
        assert!(released.flagged());
        assert_eq!(released.ticket(), first);
        assert!(word.head().flagged(), "the releaser does not clear it");
        word.clear_flag_if_alone(second, || false);
        assert!(!word.head().flagged());
        assert_eq!(word.head().ticket(), second);
    }

    #[test]
    fn flag_stays_while_somebody_queues() {
        let word = TicketWord::new();
        let holder = word.take_ticket();
        word.take_ticket();
        word.set_flag();
        word.clear_flag_if_alone(holder, || false);
        assert!(word.head().flagged());
    }

    #[test]
    fn flag_stays_while_somebody_stands_outside() {
        let word = TicketWord::new();
        let holder = word.take_ticket();
        assert_eq!(word.set_flag().ticket(), holder);
        word.clear_flag_if_alone(holder, || true);
        assert!(word.head().flagged());
    }

    #[test]
    fn the_queue_is_counted_over_the_wrap() {
        let word = TicketWord::starting_at(0xfffe);
        assert_eq!(word.queued(word.head()), 0);
        word.take_ticket();
        word.take_ticket();
        word.set_flag();
        assert_eq!(word.queued(word.head()), 2);
    }

    #[test]
    fn waiting_for_a_release_ends_though_the_queue_never_does() {
        // Over the wrap: at each look the holder releases and another joins the queue.
        let word = TicketWord::starting_at(0xfffc);
        word.take_ticket();
        word.take_ticket();
        for _ in 0..5 {
            let mut looks = 0;
            word.wait_until_released(|| {
                looks += 1;
                assert!(looks < 10, "it waits for an empty queue");
                word.take_ticket();
                word.release_fetch();
            });
            assert_eq!(looks, 1);
            assert!(word.queued(word.head()) == 2, "nobody ever saw the lock free");
        }
    }

    #[test]
    fn a_free_lock_is_not_waited_for() {
        let word = TicketWord::starting_at(0xfffe);
        word.set_flag();
        word.wait_until_released(|| panic!("nobody holds it"));
    }

    #[test]
    fn the_word_is_four_bytes() {
        assert_eq!((size_of::<TicketWord>(), align_of::<TicketWord>()), (4, 4));
    }
}
