//! The lock word: head and tail, tickets of 16 or 8 bits.
//!
//! Head and tail are two atomics rather than one of 32 bits: a native release is a plain, unlocked
//! add to the head alone, and Rust's memory model leaves accesses of different sizes to the same
//! bytes undefined. The order of the steps replaces a 32-bit compare-exchange (clear the flag if no
//! CPU queues, join if the lock is free): see [`TicketWord::clear_flag_if_alone`] and
//! [`TicketWord::draw_if_free`].

use crate::sync::{AtomicU8, AtomicU16, Ordering};
use crate::width::Width;

/// Distance between two tickets. Two, to keep the head's low bit free.
pub(crate) const INC: u16 = 2;

/// Low bit of the head: a waiter has halted, or is about to halt.
pub(crate) const SLOWPATH: u16 = 1;

/// Head and tail of a ticketlock.
#[derive(Debug, Default)]
#[repr(C, align(4))]
pub(crate) struct TicketWord<C> {
    head: C,
    tail: C,
}

// Observers get a lock's address, and read the head there.
const _: () = assert!(core::mem::offset_of!(TicketWord<AtomicU16>, head) == 0);

/// A value of the head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head(u16);

impl Head {
    /// The ticket that is served.
    pub(crate) fn ticket(self) -> u16 {
        self.0 & !SLOWPATH
    }

    /// Whether the slowpath flag is set.
    pub(crate) fn flagged(self) -> bool {
        self.0 & SLOWPATH != 0
    }
}

/// The constructors of a word, for each width: const functions cannot be generic over it.
macro_rules! constructors {
    ($atomic:ident, $value:ty) => {
        impl TicketWord<$atomic> {
            pub(crate) const fn new() -> Self {
                Self { head: $atomic::new(0), tail: $atomic::new(0) }
            }

            /// Creates a free lock whose next ticket is `ticket`.
            #[cfg(test)]
            pub(crate) const fn starting_at(ticket: u16) -> Self {
                let ticket = ticket as $value;
                Self { head: $atomic::new(ticket), tail: $atomic::new(ticket) }
            }
        }
    };
}

constructors!(AtomicU16, u16);
constructors!(AtomicU8, u8);

impl<C: Width> TicketWord<C> {
    /// Joins the queue; returns the caller's ticket.
    #[inline]
    pub(crate) fn take_ticket(&self) -> u16 {
        self.tail.fetch_add(INC, Ordering::SeqCst)
    }

    /// Draws the ticket that is being served, if no CPU has it.
    ///
    /// If the caller is preempted between its two steps, other CPUs may draw all other tickets: the
    /// tail then has the same value, although the lock is not free. So the caller rereads the head,
    /// and puts the ticket back. If others have queued behind it by then, it cannot, and has to
    /// wait for its ticket to be served, although the lock looked free.
    #[inline]
    pub(crate) fn draw_if_free(&self) -> Option<u16> {
        self.try_draw(self.head().ticket())
    }

    /// Completes [`TicketWord::draw_if_free`], after reading `served` in the head.
    #[inline]
    fn try_draw(&self, served: u16) -> Option<u16> {
        let next = C::after(served);
        self.tail.compare_exchange(served, next, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        if self.head().ticket() == served || !self.put_back(served) {
            return Some(served);
        }
        None
    }

    /// Puts back `ticket`, drawn but not served, if it is the last in the queue. The tail directly
    /// after it proves this: it cannot wrap around while a CPU has this ticket.
    #[cold]
    fn put_back(&self, ticket: u16) -> bool {
        let next = C::after(ticket);
        self.tail.compare_exchange(next, ticket, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Reads the head. A CPU that sees its own ticket there holds the lock.
    #[inline]
    pub(crate) fn head(&self) -> Head {
        Head(self.head.load(Ordering::Acquire))
    }

    /// Waits until the lock has been free at some moment: until its present holder has released it.
    ///
    /// The queue need not be empty then: CPUs that take the lock in turn may never leave it empty.
    pub(crate) fn wait_until_released(&self, mut pause: impl FnMut()) {
        let first = self.head();
        while self.queued(first) > 0 && self.head().ticket() == first.ticket() {
            pause();
        }
    }

    /// Releases with a plain add. Only for locks whose head is written by the holder alone: a flag
    /// set in between would be lost. Returns the ticket that is served from now on.
    #[inline]
    pub(crate) fn release_plain(&self) -> u16 {
        let head = self.head.load(Ordering::Relaxed);
        self.head.store(head.wrapping_add(INC), Ordering::Release);
        C::after(head)
    }

    /// Releases with one atomic add, a full barrier. Returns the old head, with the flag at that
    /// moment. From here on the lock may be freed memory.
    #[inline]
    pub(crate) fn release_fetch(&self) -> Head {
        Head(self.head.fetch_add(INC, Ordering::SeqCst))
    }

    /// Requests that the releaser look for waiters. A full barrier: the caller's earlier writes are
    /// visible to the CPU that sees the flag, and a later read of the head is not reordered before
    /// it.
    ///
    /// Returns the head that was flagged: while its ticket is served, the holder's release is still
    /// to come.
    pub(crate) fn set_flag(&self) -> Head {
        Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))
    }

    /// Number of CPUs in the queue whose holder has ticket `served`, the holder included.
    #[inline]
    pub(crate) fn queued(&self, served: Head) -> u16 {
        C::distance(served.ticket(), self.tail.load(Ordering::SeqCst))
    }

    /// Whether any CPU queues behind the holder.
    pub(crate) fn is_contended(&self) -> bool {
        self.queued(self.head()) > 1
    }

    /// Clears the flag if no CPU queues behind the holder of `ticket`, the caller, or waits outside
    /// (`is_awaited`).
    ///
    /// A waiter may queue and set the flag between the check and the clearing. It drew its ticket
    /// before, so the second check sees it, and the flag is set again while the caller still holds
    /// the lock: every release that the waiter waits for comes later. The same holds for a
    /// throttled waiter.
    #[cold]
    pub(crate) fn clear_flag_if_alone(&self, ticket: u16, is_awaited: impl Fn() -> bool) {
        let alone = C::after(ticket);
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

/// The constructors of a lock that consists of a [`TicketWord`], for each width.
macro_rules! lock_constructors {
    ($lock:ident) => {
        $crate::ticket::lock_constructors!($lock, $crate::sync::AtomicU16);
        $crate::ticket::lock_constructors!($lock, $crate::sync::AtomicU8);
    };
    ($lock:ident, $width:ty) => {
        impl $lock<$width> {
            /// Creates a free lock.
            pub const fn new() -> Self {
                Self($crate::ticket::TicketWord::<$width>::new())
            }

            /// Creates a free lock whose next ticket is `ticket`.
            #[cfg(test)]
            #[allow(dead_code)]
            pub(crate) const fn starting_at(ticket: u16) -> Self {
                Self($crate::ticket::TicketWord::<$width>::starting_at(ticket))
            }
        }
    };
}
pub(crate) use lock_constructors;

#[cfg(test)]
mod tests {
    use super::*;

    type Large = TicketWord<AtomicU16>;
    type Small = TicketWord<AtomicU8>;

    #[test]
    fn waiting_ends_although_the_queue_never_empties() {
        // Across the wrap: at each iteration the holder releases and another CPU joins the queue.
        let word = Large::starting_at(0xfffc);
        word.take_ticket();
        word.take_ticket();
        for _ in 0..5 {
            let mut spins = 0;
            word.wait_until_released(|| {
                spins += 1;
                assert!(spins < 10, "it waits for an empty queue");
                word.take_ticket();
                word.release_fetch();
            });
            assert_eq!(spins, 1);
            assert!(word.queued(word.head()) == 2, "the lock was never seen free");
        }
    }

    #[test]
    fn a_full_small_queue_is_served_in_order() {
        let word = Small::starting_at(0x80);
        let tickets: [u16; 127] = core::array::from_fn(|_| word.take_ticket());
        assert_eq!(word.queued(word.head()), 127);
        assert!(word.draw_if_free().is_none(), "a full queue is not empty");
        word.set_flag();
        for ticket in tickets {
            assert_eq!(word.head().ticket(), ticket);
            word.release_fetch();
        }
        assert_eq!(word.queued(word.head()), 0);
    }

    #[test]
    fn a_ticket_drawn_by_mistake_is_put_back() {
        // Seen free at 0; since then all tickets were drawn, and the last is served.
        let word = Small::starting_at(0xfe);
        assert_eq!(word.take_ticket(), 0xfe);
        assert_eq!(word.try_draw(0), None);
        assert_eq!(word.queued(word.head()), 1);
        word.release_plain();
        assert_eq!(word.take_ticket(), 0);
        assert_eq!(word.head().ticket(), 0);
    }

    #[test]
    fn a_ticket_with_successors_is_not_put_back() {
        let word = Small::new();
        let tickets = [word.take_ticket(), word.take_ticket(), word.take_ticket()];
        assert!(!word.put_back(tickets[1]));
        assert!(word.put_back(tickets[2]));
        assert!(word.put_back(tickets[1]));
        assert!(!word.is_contended());
    }
}
