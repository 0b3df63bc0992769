//! A reference count and the lock of the counted object in one word (Linux's lockref), so that a
//! single compare-exchange checks that the lock is free and changes the count.
//!
//! One type has the number of tries before it takes the lock as a parameter: [`UnboundedLockref`]
//! tries as long as the lock is free, [`BoundedLockref`] a fixed number of times, [`LockedLockref`]
//! not at all. The first suits low contention, the last high; the second is never
//! far from the better of the two. Each reports its failed tries.
//!
//! Guarantees: the count changes atomically, and while the lock is held only by its holder; a dead
//! lockref, whose count is negative, never gives a reference again ([`Lockref::get_not_dead`]). The
//! lock is fair; with [`Pv::ENABLED`] its waiters halt.

mod word;

use crate::lockref::word::Word;
use crate::sync::Ordering;
use crate::wait::LockKey;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// No bound: Linux's lockref until "Disable lockref on arm64" (2019), where 28 threads needed about
/// 25 tries per success.
pub const UNBOUNDED: u32 = u32::MAX;

/// The discussion of 2019 asks for a bound without naming one; Linux has used this bound since.
pub const DEFAULT_TRIES: u32 = 100;

/// The count of a dead lockref: far enough below zero for gets that do not check.
const DEAD: i32 = -128;

/// Tries for as long as the lock is free.
pub type UnboundedLockref = Lockref<UNBOUNDED>;
/// Tries a fixed number of times, then takes the lock.
pub type BoundedLockref = Lockref<DEFAULT_TRIES>;
/// Always takes the lock.
pub type LockedLockref = Lockref<0>;

/// The cost of a change of the count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountChange {
    /// Failed compare-exchanges.
    pub retries: u32,
    /// Whether the lock was taken.
    pub locked: bool,
    /// Calls of [`Pv::lock_spinning`].
    pub halts: u32,
    /// Calls of [`Pv::unlock_kick`].
    pub kicks: u32,
}

/// Result of [`Lockref::put_or_lock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The reference was dropped.
    Done(CountChange),
    /// The reference is the last (or the lockref is dead): it was not dropped, and the caller holds
    /// the lock.
    Locked(CountChange),
}

/// The lockref is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead;

/// A count and a lock, with up to `TRIES` compare-exchanges before the lock is taken.
#[derive(Debug)]
#[repr(transparent)]
pub struct Lockref<const TRIES: u32>(Word);

impl<const TRIES: u32> Default for Lockref<TRIES> {
    fn default() -> Self {
        Self::new(1)
    }
}

impl<const TRIES: u32> Lockref<TRIES> {
    /// Bound on the bypasses of a waiter for the lock. While any CPU waits, the count is changed
    /// only under the lock.
    pub const BYPASS: Bypass = Bypass::FromCall;

    /// Creates a lockref with `count` references and a free lock.
    pub const fn new(count: i32) -> Self {
        Self(Word::new(count))
    }

    /// Takes a reference. The caller must have one already, or otherwise keep the count above zero.
    #[inline]
    pub fn get<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> CountChange {
        self.change(cpu, |count| Some(count + 1)).0
    }

    /// Takes a reference unless the lockref is dead.
    #[inline]
    pub fn get_not_dead<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Result<CountChange, Dead> {
        let (counted, is_done) = self.change(cpu, |count| (count >= 0).then(|| count + 1));
        if is_done { Ok(counted) } else { Err(Dead) }
    }

    /// Drops a reference, without checking how many remain.
    #[inline]
    pub fn put<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> CountChange {
        self.change(cpu, |count| Some(count - 1)).0
    }

    /// Drops a reference if others remain; otherwise takes the lock instead.
    pub fn put_or_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Put {
        let less = |count| (count > 1).then(|| count - 1);
        let mut counted = CountChange::default();
        if self.try_change(&mut counted, less) == Some(true) {
            return Put::Done(counted);
        }
        self.lock_counted(cpu, &mut counted);
        // Others may have taken references while this CPU waited.
        let Some(count) = less(self.count()) else { return Put::Locked(counted) };
        counted.kicks += self.release(cpu, count);
        Put::Done(counted)
    }

    /// The count at some moment; exact for the lock's holder.
    pub fn count(&self) -> i32 {
        self.0.load(Ordering::Relaxed).count()
    }

    /// Whether the lockref is dead. Once true, it stays true.
    pub fn is_dead(&self) -> bool {
        self.count() < 0
    }

    /// Takes the lock.
    pub fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> CountChange {
        let mut counted = CountChange::default();
        self.lock_counted(cpu, &mut counted);
        counted
    }

    /// Releases the lock. Only its holder may call it.
    pub fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.release(cpu, self.count());
    }

    /// Makes [`Lockref::get_not_dead`] fail from here on. Only the lock's holder may call it.
    pub fn mark_dead(&self) {
        self.0.set_count(DEAD);
    }

    /// Changes the count to `update(count)`, unless that is `None`. Returns whether it was changed.
    #[inline]
    fn change<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        update: impl Fn(i32) -> Option<i32>,
    ) -> (CountChange, bool) {
        let mut counted = CountChange::default();
        if let Some(is_done) = self.try_change(&mut counted, &update) {
            return (counted, is_done);
        }
        self.lock_counted(cpu, &mut counted);
        let count = self.count();
        let new = update(count);
        counted.kicks += self.release(cpu, new.unwrap_or(count));
        (counted, new.is_some())
    }

    /// Tries without the lock. Returns whether the count was changed; `None` if the lock is held, or
    /// after too many tries.
    #[inline]
    fn try_change(
        &self,
        counted: &mut CountChange,
        update: impl Fn(i32) -> Option<i32>,
    ) -> Option<bool> {
        if TRIES == 0 {
            return None;
        }
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if word.is_locked() {
                return None;
            }
            let Some(count) = update(word.count()) else { return Some(false) };
            match self.0.exchange(word, word.with_count(count)) {
                Ok(()) => return Some(true),
                Err(now) => word = now,
            }
            counted.retries += 1;
            if TRIES != UNBOUNDED && counted.retries >= TRIES {
                return None;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_counted<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, counted: &mut CountChange) {
        counted.locked = true;
        let ticket = self.0.take_ticket();
        let mut was_nested = false;
        while !self.spin_until_served(cpu, ticket) {
            was_nested |= self.halt(cpu, ticket, counted);
        }
        settle(cpu);
        // In an interrupt handler: one of its halts may have consumed the interrupted wait's kick.
        if was_nested {
            cpu.pv.unlock_kick(cpu.id);
        }
    }

    /// Spins up to the threshold. Returns whether the caller holds the lock.
    fn spin_until_served<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) -> bool {
        let mut remaining = cpu.spin_threshold;
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word.served() == ticket {
                self.0.clear_flag_if_alone(word);
                return true;
            }
            if P::ENABLED && remaining == 0 {
                return false;
            }
            let max = if P::ENABLED { remaining } else { u32::MAX };
            remaining = remaining.saturating_sub(cpu.pv.spin(max));
        }
    }

    /// Halts once unless `ticket` is served. Returns whether this wait interrupts another.
    fn halt<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        ticket: u16,
        counted: &mut CountChange,
    ) -> bool {
        let outer = cpu.waiters.publish(cpu.id, LockKey::new(self), ticket);
        // The flag, and with it the last read: the release that serves this ticket either comes
        // after it and sees the flag, or before it and is seen here.
        if self.0.set_flag().served() != ticket {
            settle(cpu);
            counted.halts += 1;
            cpu.pv.lock_spinning(ticket);
        }
        cpu.waiters.withdraw(cpu.id, outer)
    }

    /// Sets the count to `count` and releases the lock, in one step. Returns the number of kicks
    /// sent.
    fn release<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, count: i32) -> u32 {
        let key = LockKey::new(self);
        // From here on the lockref may be freed memory.
        let (is_flagged, next) = self.0.release(count);
        if !P::ENABLED || !is_flagged {
            return 0;
        }
        let kicked = cpu.waiters.find(key, next).inspect(|waiter| cpu.pv.unlock_kick(*waiter));
        kicked.count() as u32
    }
}

#[cfg(test)]
mod tests;
