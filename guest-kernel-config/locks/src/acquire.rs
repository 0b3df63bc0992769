//! Common steps of locks without tickets, with the calls to their observer.

use crate::halt::{self, Waits};
use crate::sync::{AtomicU16, MAX_CPUS, Ordering};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Acquisition, Bypass, Cpu, Position, Pv, RawLock, Release, WaitTable, Watch};

/// A lock without tickets: a CPU takes it at once, or waits for it. Every such lock is a [`RawLock`].
pub(crate) trait Ticketless {
    /// See [`RawLock::FIFO`].
    const FIFO: bool;

    /// See [`RawLock::BYPASS`].
    const BYPASS: Bypass;

    /// See [`RawLock::CPUS`].
    const CPUS: u32 = MAX_CPUS as u32;

    /// Takes the lock, unless the caller has to wait for it. Returns whether it was taken.
    fn take<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool;

    /// Returns once the caller holds the lock.
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, waits: &mut Waits);

    /// Releases the lock; `true` if a waiter needs a [`kick`](Self::kick).
    fn release<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool;

    /// Kicks a waiter after a release. Takes only the lock's key: the lock may be freed memory.
    fn kick<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, lock: LockKey) -> Release {
        let _ = (cpu, lock);
        Release::default()
    }

    /// See [`RawLock::is_contended`].
    fn is_contended(&self) -> bool;

    /// See [`RawLock::releases_before`].
    fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        let _ = (waiters, position);
        None
    }

    /// See [`RawLock::wait_until_released`].
    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>);
}

impl<L: Ticketless> RawLock for L {
    const FIFO: bool = <L as Ticketless>::FIFO;
    const BYPASS: Bypass = <L as Ticketless>::BYPASS;
    const CPUS: u32 = <L as Ticketless>::CPUS;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Acquisition {
        cpu.watch.entering(None);
        let mut waits = Waits::default();
        let slow = !self.take(cpu);
        if slow {
            self.wait(cpu, &mut waits);
            waits.restore_kick(cpu);
        }
        cpu.watch.taken(LockKey::new(self).address(), None);
        Acquisition { slow, halts: waits.halts, ticket: None }
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Acquisition> {
        if !self.take(cpu) {
            return None;
        }
        cpu.watch.taken(LockKey::new(self).address(), None);
        Some(Acquisition::default())
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Release {
        let key = LockKey::new(self);
        // From here on the lock may be freed memory.
        let is_awaited = self.release(cpu);
        halt::after_release(cpu, key, is_awaited, || L::kick(cpu, key))
    }

    fn is_contended(&self) -> bool {
        Ticketless::is_contended(self)
    }

    fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        Ticketless::releases_before(self, waiters, position)
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        Ticketless::wait_until_released(self, cpu);
    }
}

/// Waits outside the queue until `take` succeeds: for a CPU whose nodes are all in use.
pub(crate) fn wait_without_node<L, P: Pv, W: Watch>(
    lock: &L,
    cpu: &Cpu<'_, P, W>,
    take: impl Fn() -> bool,
) {
    cpu.watch.queued(LockKey::new(lock).address(), None);
    Spins::new(&cpu.watch).until(cpu, None, take);
}

/// Changes the word of a lock from zero (free) to `held`; returns whether it was zero. Reads it first, so
/// that the cache line of a held lock stays shared. Acquires the writes of earlier holders.
#[inline]
pub(crate) fn take_zero(word: &AtomicU16, held: u16) -> bool {
    word.load(Ordering::Relaxed) == 0
        && word.compare_exchange(0, held, Ordering::Acquire, Ordering::Relaxed).is_ok()
}
