//! Who waits for which ticket of which lock.

use crate::sync::{AtomicU16, AtomicU64, AtomicUsize, Ordering};

/// CPUs that one [`WaitTable`] serves.
pub const MAX_CPUS: usize = 128;

const BITS: usize = u64::BITS as usize;
const WORDS: usize = MAX_CPUS / BITS;

/// What identifies a lock once it may be freed memory: its address, never
/// followed. No lock has address zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockKey(usize);

impl LockKey {
    /// The key of the lock at `lock`.
    pub(crate) fn of<T>(lock: &T) -> Self {
        Self(core::ptr::from_ref(lock).addr())
    }

    /// The lock's address.
    pub(crate) fn address(self) -> usize {
        self.0
    }
}

/// One CPU's record. Alone in its pair of cache lines: its owner writes it on
/// every halt.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Waiter {
    /// A [`LockKey`], or zero. Not zero only while `want` is right.
    lock: AtomicUsize,
    want: AtomicU16,
}

/// A record for each CPU, and a mask of those worth looking at.
#[derive(Debug)]
pub struct WaitTable {
    waiting: [AtomicU64; WORDS],
    waiters: [Waiter; MAX_CPUS],
}

impl Default for WaitTable {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitTable {
    /// A table in which nobody waits.
    pub const fn new() -> Self {
        Self {
            waiting: [const { AtomicU64::new(0) }; WORDS],
            waiters: [const { Waiter { lock: AtomicUsize::new(0), want: AtomicU16::new(0) } };
                MAX_CPUS],
        }
    }

    /// `cpu` is about to wait for ticket `want` of `lock`.
    pub(crate) fn publish(&self, cpu: usize, lock: LockKey, want: u16) {
        let waiter = &self.waiters[cpu];
        // A kicker must not pair the new ticket with the old lock, nor the
        // other way round.
        waiter.lock.store(0, Ordering::SeqCst);
        waiter.want.store(want, Ordering::Release);
        waiter.lock.store(lock.0, Ordering::Release);
        self.waiting[cpu / BITS].fetch_or(1 << (cpu % BITS), Ordering::SeqCst);
    }

    /// `cpu` no longer waits.
    pub(crate) fn withdraw(&self, cpu: usize) {
        self.waiting[cpu / BITS].fetch_and(!(1 << (cpu % BITS)), Ordering::SeqCst);
        self.waiters[cpu].lock.store(0, Ordering::Release);
    }

    /// The CPU that waits for ticket `want` of `lock`.
    pub(crate) fn find(&self, lock: LockKey, want: u16) -> Option<usize> {
        for (word, mask) in self.waiting.iter().enumerate() {
            let mut left = mask.load(Ordering::SeqCst);
            while left != 0 {
                let cpu = word * BITS + left.trailing_zeros() as usize;
                left &= left - 1;
                let waiter = &self.waiters[cpu];
                if waiter.lock.load(Ordering::Acquire) == lock.0
                    && waiter.want.load(Ordering::Acquire) == want
                {
                    return Some(cpu);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_lock_and_ticket_on_either_mask_word() {
        let table = WaitTable::new();
        let (a, b) = (LockKey(0x1000), LockKey(0x2000));
        table.publish(3, a, 10);
        table.publish(127, b, 10);
        table.publish(64, a, 12);
        assert_eq!(table.find(a, 10), Some(3));
        assert_eq!(table.find(b, 10), Some(127));
        assert_eq!(table.find(a, 12), Some(64));
        assert_eq!(table.find(b, 12), None);
    }

    #[test]
    fn withdrawn_waiters_are_not_found() {
        let table = WaitTable::new();
        let lock = LockKey(0x1000);
        table.publish(5, lock, 4);
        table.withdraw(5);
        assert_eq!(table.find(lock, 4), None);
        table.publish(5, lock, 6);
        assert_eq!(table.find(lock, 4), None);
        assert_eq!(table.find(lock, 6), Some(5));
    }
}
