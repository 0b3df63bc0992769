//! The word that shows whether a lock is held, for locks that are not held by ticket.
//!
//! It also counts releases, so that a CPU that waits for a release without wanting the lock sees
//! one even if the lock is taken again at once. It changes from held to released in one step,
//! because after that the lock may be freed memory.

use crate::sync::{AtomicU16, Ordering};

const HELD: u16 = 1;
/// A waiter halts until the release, or is about to halt.
const AWAITED: u16 = 2;
/// The lock is reserved for a certain waiter: others may not take it.
const RESERVED: u16 = 4;
/// One release. This and the higher bits count releases; the count wraps.
const RELEASE: u16 = 8;

/// [`HELD`], the flags and the count of releases.
#[derive(Debug, Default)]
pub(crate) struct Held(AtomicU16);

impl Held {
    pub(crate) const fn new() -> Self {
        Self(AtomicU16::new(0))
    }

    /// Whether the lock is held. Relaxed: a hint.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HELD != 0
    }

    /// Takes the lock if it is free, even if it is reserved. Returns whether the caller holds it.
    ///
    /// Acquire is enough: mutual exclusion follows from the single modification order of one word,
    /// and this reads from a release store.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.take_without(HELD)
    }

    /// Like [`Held::take`], but fails if the lock is reserved.
    #[inline]
    pub(crate) fn take_unreserved(&self) -> bool {
        self.take_without(HELD | RESERVED)
    }

    /// Like [`Held::take`], for the head of a queue: gives up its reservation.
    pub(crate) fn take_reserved(&self) -> bool {
        self.change_without(HELD, |word| word & !RESERVED | HELD)
    }

    #[inline]
    fn take_without(&self, forbidden: u16) -> bool {
        self.change_without(forbidden, |word| word | HELD)
    }

    /// Reads first: a held word is not written, and stays shared in the caches that poll it.
    #[inline]
    fn change_without(&self, forbidden: u16, change: impl Fn(u16) -> u16) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & forbidden == 0 {
            let next = change(word);
            let taken = self.0.compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed);
            match taken {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the lock, or else asks its holder to kick at the release, in one step: every release
    /// either sees the flag or is seen. Returns whether the caller holds it. Sets the flag either
    /// way.
    ///
    /// Releases the caller's record to the holder, which reads the flag when it releases.
    pub(crate) fn take_or_request_kick(&self) -> bool {
        self.0.fetch_or(HELD | AWAITED, Ordering::AcqRel) & HELD == 0
    }

    /// Requests a kick at the caller's own release. Relaxed: only the holder reads it.
    pub(crate) fn request_own_kick(&self) {
        self.0.fetch_or(AWAITED, Ordering::Relaxed);
    }

    /// Asks the holder to kick at its release. Returns `false` if the lock is not held.
    pub(crate) fn request_kick(&self) -> bool {
        self.0.fetch_or(AWAITED, Ordering::AcqRel) & HELD != 0
    }

    /// Whether a requested kick is still to come. Release, for the caller's record; acquire, for the writes of the
    /// CPU that has released the lock.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.fetch_or(0, Ordering::AcqRel) & AWAITED != 0
    }

    /// Reserves the lock for the caller: [`Held::take_unreserved`] fails. Relaxed: it publishes
    /// nothing, and the modification order of this word is enough.
    pub(crate) fn reserve(&self) {
        self.0.fetch_or(RESERVED, Ordering::Relaxed);
    }

    /// Gives up a reservation.
    pub(crate) fn unreserve(&self) {
        self.0.fetch_and(!RESERVED, Ordering::Relaxed);
    }

    /// Whether the lock is reserved. Relaxed: a hint.
    pub(crate) fn is_reserved(&self) -> bool {
        self.0.load(Ordering::Relaxed) & RESERVED != 0
    }

    /// Clears all requests, the holder's own and others'. Called by the holder. Relaxed: they take
    /// effect only at the release.
    pub(crate) fn clear_flags(&self) {
        self.0.fetch_and(!(AWAITED | RESERVED), Ordering::Relaxed);
    }

    /// Releases with a plain store, for locks without flags: then only the holder writes the word.
    /// From here on the lock may be freed memory.
    #[inline]
    pub(crate) fn release_plain(&self) {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(RELEASE) & !(RELEASE - 1);
        self.0.store(next, Ordering::Release);
    }

    /// Releases and clears all flags. Returns whether a waiter awaits the release. From here on
    /// the lock may be freed memory.
    ///
    /// Acquire, for the record of the CPU that set the flag.
    #[inline]
    pub(crate) fn release_clearing(&self) -> bool {
        let next = self.0.load(Ordering::Relaxed).wrapping_add(RELEASE) & !(RELEASE - 1);
        self.0.swap(next, Ordering::AcqRel) & AWAITED != 0
    }

    /// Releases and keeps a reservation. Returns whether a waiter awaited the release; it must ask
    /// again for the next release. From here on the lock may be freed memory.
    ///
    /// Acquire, for the record of the CPU that set the flag.
    #[inline]
    pub(crate) fn release_reserved(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let next = word.wrapping_add(RELEASE - HELD) & !AWAITED;
            match self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return word & AWAITED != 0,
                Err(now) => word = now,
            }
        }
    }

    /// Waits until the lock has been free at some moment: until its present holder has released
    /// it.
    pub(crate) fn wait_until_released(&self, mut pause: impl FnMut()) {
        let first = self.0.load(Ordering::Acquire);
        let is_same = |now: u16| now & HELD != 0 && (now ^ first) / RELEASE == 0;
        while is_same(self.0.load(Ordering::Acquire)) {
            pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_head_takes_a_reserved_lock() {
        let held = Held::new();
        held.reserve();
        assert!(!held.take_unreserved());
        assert!(held.take());
        assert!(!held.release_reserved());
        assert!(!held.take_unreserved() && held.is_reserved(), "it is kept over a release");
        assert!(held.take_reserved());
        assert!(!held.is_reserved(), "given up with the lock taken");
        assert!(!held.take_or_request_kick() && held.is_awaited());
        assert!(held.release_reserved());
        assert!(!held.is_awaited());
        assert!(held.take_unreserved());
        assert!(!held.release_reserved(), "awaited no longer");
    }

    #[test]
    fn release_count_wraps_and_the_word_is_free() {
        let held = Held::new();
        for round in 0..(1 << 14) {
            assert!(held.take(), "round {round}");
            match round % 3 {
                0 => held.release_plain(),
                1 => assert!(!held.release_clearing()),
                _ => assert!(!held.release_reserved()),
            }
            assert!(!held.is_held());
        }
    }

    #[test]
    fn waiting_ends_at_a_release_without_a_free_lock() {
        let held = Held::new();
        assert!(held.take());
        // Across the wrap of the count.
        for _ in 0..(1 << 13) + 5 {
            let mut spins = 0;
            held.wait_until_released(|| {
                spins += 1;
                held.release_reserved();
                assert!(held.take());
                // A flag does not count as a release.
                held.request_own_kick();
            });
            assert_eq!(spins, 1);
        }
    }
}
