//! A lock word with the holder's CPU and a count of the acquisitions ahead of the queue.

use crate::sync::{AtomicU32, MAX_CPUS, Ordering};
use crate::{Cpu, Pv, Watch};

/// The lock is held. Bit 0, where observers expect it.
const HELD: u32 = 1;
/// The holder's CPU, from this bit up to bit 15; undefined while the lock is free.
const OWNER: u32 = 2;
const OWNER_MASK: u32 = 0x7fff * OWNER;
/// One acquisition ahead of the queue since the head of the queue was last served. Two bits.
const STEAL: u32 = 1 << 16;
/// The holder was seen preempted. In the place of [`STEAL`], for locks that do not count steals.
const SLEEPY: u32 = STEAL;
/// The largest number of acquisitions ahead of the queue that the two bits can count.
pub(crate) const MAX_STEALS: u32 = 3;
/// One release. This and the higher bits count releases; the count wraps.
const RELEASE: u32 = 1 << 18;

const _: () = assert!(MAX_CPUS as u32 <= OWNER_MASK / OWNER);

/// [`HELD`], the holder, the count of steals and the count of releases.
///
/// Only the holder writes a held word, so a release is a plain store. Releases are counted so that
/// a CPU that waits for one without wanting the lock sees it even if the lock is taken again at
/// once.
#[derive(Debug, Default)]
pub(crate) struct Owned(AtomicU32);

/// The word of a held lock at the time of a read. A hint, which may be outdated at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen(u32);

impl Seen {
    /// The CPU that held the lock.
    pub(crate) const fn owner(self) -> usize {
        ((self.0 & OWNER_MASK) / OWNER) as usize
    }

    /// Whether the holder had been seen preempted. For locks that do not count steals.
    pub(crate) const fn is_sleepy(self) -> bool {
        self.0 & SLEEPY != 0
    }
}

impl Owned {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether the lock is held. Relaxed: a hint.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HELD != 0
    }

    /// The CPU that holds the lock. Relaxed: a hint, which may be outdated at once.
    #[inline]
    pub(crate) fn owner(&self) -> Option<usize> {
        self.seen().map(Seen::owner)
    }

    /// Reads the word; None if the lock is free.
    #[inline]
    pub(crate) fn seen(&self) -> Option<Seen> {
        let word = self.0.load(Ordering::Relaxed);
        (word & HELD != 0).then_some(Seen(word))
    }

    /// Takes the lock for `cpu` if it is free, ahead of the queue: at most [`MAX_STEALS`] times
    /// before the head of the queue is served. Not counted if the queue is empty.
    #[inline]
    pub(crate) fn steal(&self, cpu: usize, is_queue_empty: bool) -> bool {
        let allow = |word: u32| (word / STEAL) & MAX_STEALS < MAX_STEALS;
        let step = if is_queue_empty { 0 } else { STEAL };
        self.take_if(cpu, allow, |word| word + step).is_ok()
    }

    /// Takes the lock for `cpu`, the head of the queue, if it is free. Resets the count of steals.
    #[inline]
    pub(crate) fn take(&self, cpu: usize) -> bool {
        self.take_or_see(cpu).is_ok()
    }

    /// Like [`Owned::take`]; a lock that is held is read once.
    #[inline]
    pub(crate) fn take_or_see(&self, cpu: usize) -> Result<(), Seen> {
        self.take_if(cpu, |_| true, |word| word & !(MAX_STEALS * STEAL))
    }

    /// Reads first: a held word is not written, and stays shared in the caches that poll it.
    ///
    /// Acquire is enough: mutual exclusion follows from the single modification order of one word,
    /// and this reads from a release store.
    #[inline]
    fn take_if(
        &self,
        cpu: usize,
        allow: impl Fn(u32) -> bool,
        count: impl Fn(u32) -> u32,
    ) -> Result<(), Seen> {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & HELD == 0 && allow(word) {
            let owner = cpu as u32 * OWNER;
            let next = (count(word) & !OWNER_MASK) | HELD | owner;
            match self.0.compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
        Err(Seen(word))
    }

    /// Marks the lock as sleepy until its release, if its word is unchanged since `seen`. Relaxed: a hint; a concurrent
    /// release clears or overwrites it.
    pub(crate) fn mark_sleepy(&self, Seen(word): Seen) {
        if word & SLEEPY == 0 {
            let sleepy = word | SLEEPY;
            let _ = self.0.compare_exchange(word, sleepy, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Releases the lock. Resets the count of steals if no CPU queues: there was no queue to pass.
    /// From here on the lock may be freed memory.
    #[inline]
    pub(crate) fn release(&self, is_queue_empty: bool) {
        let word = self.0.load(Ordering::Relaxed).wrapping_add(RELEASE) & !HELD;
        let next = if is_queue_empty { word & !(MAX_STEALS * STEAL) } else { word };
        self.0.store(next, Ordering::Release);
    }

    /// Waits until the lock has been free at some moment: until its present holder has released it.
    pub(crate) fn wait_until_released(&self, mut pause: impl FnMut()) {
        let first = self.0.load(Ordering::Acquire);
        let is_same = |now: u32| now & HELD != 0 && (now ^ first) / RELEASE == 0;
        while is_same(self.0.load(Ordering::Acquire)) {
            pause();
        }
    }
}

/// Donates the calling waiter's slice to `target`, if that CPU is known not to be running.
pub(crate) fn yield_if_off<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, target: Option<usize>) {
    if let Some(target) = target
        && cpu.pv.is_off(target)
    {
        cpu.pv.yield_to(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_contains_the_holder() {
        let word = Owned::new();
        assert_eq!(word.owner(), None);
        for cpu in [0, 5, MAX_CPUS - 1] {
            assert!(word.take(cpu));
            assert_eq!(word.owner(), Some(cpu));
            assert!(!word.take(1) && !word.steal(1, false), "it is held");
            word.release(true);
            assert_eq!((word.owner(), word.is_held()), (None, false));
        }
    }

    #[test]
    fn steals_are_not_counted_without_a_queue() {
        let word = Owned::new();
        for _ in 0..(1 << 14) + 3 {
            assert!(word.steal(2, true));
            word.release(true);
        }
        let steals = (0..5).filter(|_| {
            let is_stolen = word.steal(2, false);
            if is_stolen {
                word.release(false);
            }
            is_stolen
        });
        assert_eq!(steals.count(), MAX_STEALS as usize);
    }

    #[test]
    fn waiting_ends_at_a_release_without_a_free_lock() {
        let word = Owned::new();
        assert!(word.take(0));
        word.wait_until_released(|| {
            word.release(false);
            assert!(word.take(0));
        });
        word.release(true);
        word.wait_until_released(|| panic!("it is not held"));
    }
}
