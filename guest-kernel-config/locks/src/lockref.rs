//! A reference count and the lock of what it counts in one word (seed 004), so that a
//! compare-exchange sees at once that the lock is free and what the count is.
//!
//! One type, with how often it tries before it takes the lock: [`UnboundedLockref`] as long as the
//! lock is free, [`BoundedLockref`] so many times, [`LockedLockref`] not at all. The first is right
//! when few contend, the last when many do; the second is never far from the better of both. Each
//! says how often it tried in vain.
//!
//! All promise: the count changes by atomic steps, and while the lock is held by its holder alone;
//! a dead lockref, whose count is negative, never gives a reference again
//! ([`Lockref::get_not_dead`]). The lock is fair; with [`Pv::ENABLED`] its waiters halt.

mod word;

use crate::lockref::word::Word;
use crate::sync::Ordering;
use crate::wait::LockKey;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// No bound: seed 004's lockref, of which 28 threads needed some 25 tries for one success.
pub const UNBOUNDED: u32 = u32::MAX;

/// The seed asks for a bound and names none; this is the one that Linux has had since.
pub const USUAL_TRIES: u32 = 100;

/// The count of a dead lockref: far enough below zero for gets that do not ask.
const DEAD: i32 = -128;

/// Tries for as long as the lock is free.
pub type UnboundedLockref = Lockref<UNBOUNDED>;
/// Tries so many times, then takes the lock.
pub type BoundedLockref = Lockref<USUAL_TRIES>;
/// Takes the lock.
pub type LockedLockref = Lockref<0>;

/// How a change of the count went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Compare-exchanges in vain.
    pub retries: u32,
    /// It took the lock.
    pub locked: bool,
    /// Calls of [`Pv::lock_spinning`].
    pub halts: u32,
    /// Calls of [`Pv::unlock_kick`].
    pub kicks: u32,
}

/// What [`Lockref::put_or_lock`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// One reference less.
    Done(Counted),
    /// The reference was the last (or the lockref is dead): it is still there, and the caller
    /// holds the lock.
    Locked(Counted),
}

/// The lockref is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead;

/// A count and a lock. Up to `TRIES` compare-exchanges before the lock is taken.
#[derive(Debug)]
#[repr(transparent)]
pub struct Lockref<const TRIES: u32>(Word);

impl<const TRIES: u32> Default for Lockref<TRIES> {
    fn default() -> Self {
        Self::new(1)
    }
}

impl<const TRIES: u32> Lockref<TRIES> {
    /// How often who waits for the lock may be passed over. While anybody does, the count is changed
    /// under the lock alone.
    pub const BYPASS: Bypass = Bypass::FromCall;

    /// `count` references; the lock is free.
    pub const fn new(count: i32) -> Self {
        Self(Word::new(count))
    }

    /// One reference more. The caller has one, or holds something that keeps the count above zero.
    #[inline]
    pub fn get<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Counted {
        self.change(cpu, |count| Some(count + 1)).0
    }

    /// One reference more unless the lockref is dead.
    #[inline]
    pub fn get_not_dead<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Result<Counted, Dead> {
        let (counted, is_done) = self.change(cpu, |count| (count >= 0).then(|| count + 1));
        if is_done { Ok(counted) } else { Err(Dead) }
    }

    /// One reference less, without a look at what remains.
    #[inline]
    pub fn put<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Counted {
        self.change(cpu, |count| Some(count - 1)).0
    }

    /// One reference less if others remain; if not, the lock is taken instead.
    pub fn put_or_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Put {
        let less = |count| (count > 1).then(|| count - 1);
        let mut counted = Counted::default();
        if self.try_to_change(&mut counted, less) == Some(true) {
            return Put::Done(counted);
        }
        self.lock_counted(cpu, &mut counted);
        // Others may have come while this CPU waited.
        let Some(now) = less(self.count()) else { return Put::Locked(counted) };
        counted.kicks += self.release(cpu, now);
        Put::Done(counted)
    }

    /// The count at some moment; what it is, for who holds the lock.
    pub fn count(&self) -> i32 {
        self.0.load(Ordering::Relaxed).count()
    }

    /// Is it dead? Once true, always true.
    pub fn is_dead(&self) -> bool {
        self.count() < 0
    }

    /// Takes the lock.
    pub fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Counted {
        let mut counted = Counted::default();
        self.lock_counted(cpu, &mut counted);
        counted
    }

    /// Gives up the lock. Only its holder may.
    pub fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.release(cpu, self.count());
    }

    /// Nobody gets a reference from here on who asks whether it is dead. Only the lock's holder may.
    pub fn mark_dead(&self) {
        self.0.set_count(DEAD);
    }

    /// What `to` makes of the count, unless that is nothing. True: it is done.
    #[inline]
    fn change<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        to: impl Fn(i32) -> Option<i32>,
    ) -> (Counted, bool) {
        let mut counted = Counted::default();
        if let Some(is_done) = self.try_to_change(&mut counted, &to) {
            return (counted, is_done);
        }
        self.lock_counted(cpu, &mut counted);
        let count = self.count();
        let now = to(count);
        counted.kicks += self.release(cpu, now.unwrap_or(count));
        (counted, now.is_some())
    }

    /// Without the lock, as long as it is free, and so many times; none: it is not, or too many.
    #[inline]
    fn try_to_change(
        &self,
        counted: &mut Counted,
        to: impl Fn(i32) -> Option<i32>,
    ) -> Option<bool> {
        if TRIES == 0 {
            return None;
        }
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if seen.is_locked() {
                return None;
            }
            let Some(now) = to(seen.count()) else { return Some(false) };
            match self.0.exchange(seen, seen.with_count(now)) {
                Ok(()) => return Some(true),
                Err(other) => seen = other,
            }
            counted.retries += 1;
            if TRIES != UNBOUNDED && counted.retries >= TRIES {
                return None;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_counted<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, counted: &mut Counted) {
        counted.locked = true;
        let ticket = self.0.take_ticket();
        let mut was_nested = false;
        while !self.look_until_served(cpu, ticket) {
            was_nested |= self.halt(cpu, ticket, counted);
        }
        settle(cpu);
        // In an interrupt handler: the outer wait's kick may have come to a halt in here.
        if was_nested {
            cpu.pv.unlock_kick(cpu.id);
        }
    }

    /// True: the caller holds the lock.
    fn look_until_served<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) -> bool {
        let mut left = cpu.spin_threshold;
        loop {
            let seen = self.0.load(Ordering::Acquire);
            if seen.served() == ticket {
                self.0.clear_flag_if_alone(seen);
                return true;
            }
            if P::ENABLED && left == 0 {
                return false;
            }
            left = left.saturating_sub(1);
            cpu.pv.spin_hint();
        }
    }

    /// Halts once unless `ticket` is served. True: there is another wait around this one.
    fn halt<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        ticket: u16,
        counted: &mut Counted,
    ) -> bool {
        let outer = cpu.waiters.publish(cpu.id, LockKey::of(self), ticket);
        // The flag, and with it the last look: the release that serves this ticket is after it and
        // sees the flag, or before it and is seen here.
        if self.0.set_flag().served() != ticket {
            settle(cpu);
            counted.halts += 1;
            cpu.pv.lock_spinning(ticket);
        }
        cpu.waiters.withdraw(cpu.id, outer)
    }

    /// The holder makes the count `now` and gives up the lock, in one step; the kicks that took.
    fn release<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, now: i32) -> u32 {
        let key = LockKey::of(self);
        // From here on this may be freed memory.
        let (is_flagged, next) = self.0.release(now);
        if !P::ENABLED || !is_flagged {
            return 0;
        }
        let kicked = cpu.waiters.find(key, next).inspect(|waiter| cpu.pv.unlock_kick(*waiter));
        kicked.count() as u32
    }
}

#[cfg(test)]
mod tests;
