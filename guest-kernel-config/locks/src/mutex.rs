//! Mutexes with optimistic spinning: a CPU that finds the mutex taken spins while the owner runs,
//! then sleeps.
//!
//! Four systems share one algorithm and differ in how they access the word and in which CPUs may
//! spin ([`Spinners`]): [`BaselineMutex`], [`ReadFirstMutex`], [`OneSpinnerMutex`],
//! [`QueuedMutex`]. Sleeping is a halt, waking a kick.
//!
//! The word is 1: free; 0: taken; negative: taken, and there may be sleepers. All systems guarantee
//! mutual exclusion and that no wakeup is lost. Sleepers are woken in order, but a wakeup does not
//! pass the mutex on: the sleeper checks again, and a spinner or a newcomer may have been faster.
//!
//! Interrupt handlers must not use mutexes; they may interrupt a mutex operation and take
//! spinlocks. A mutex may not be freed before every [`RawMutex::unlock`] has returned.

mod one_spinner;
mod queued;
mod sleepers;
mod unlimited;

pub use one_spinner::{OneSpinner, OneSpinnerMutex};
pub use queued::{QueuedMutex, SpinQueue};
pub use unlimited::{BaselineMutex, ReadFirstMutex, Unlimited};

use crate::mutex::sleepers::Sleepers;
use crate::sync::{AtomicI32, AtomicU32, Ordering};
use crate::wait::{ASLEEP, LockKey};
use crate::{Bypass, Cpu, Pv, Watch};

const FREE: i32 = 1;
/// The mutex is taken, and no CPU sleeps.
const TAKEN: i32 = 0;
/// The mutex is taken, and its release must look for sleepers. Other negative values mean the same.
const AWAITED: i32 = -1;

/// The cost of an acquisition of a mutex.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MutexCost {
    /// Whether the mutex was not free at the first attempt.
    pub slow: bool,
    /// Calls to [`Pv::lock_spinning`], including those for the sleeper list's lock.
    pub halts: u32,
    /// Iterations of optimistic spinning, in the queue of spinners (if any) and for the owner.
    pub spins: u32,
    /// Atomic read-modify-writes of the mutex's word, which "mutex: Make more scalable by doing
    /// less atomic operations" (Linux 2013) reduces.
    pub rmw: u32,
    /// Read-modify-writes of the state that decides which CPU may spin: the field of the
    /// [`OneSpinnerMutex`], or the queue's tail.
    pub spinner_rmw: u32,
}

/// The cost of a release of a mutex.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MutexReleaseCost {
    /// Calls to [`Pv::unlock_kick`], including those for the sleeper list's lock.
    pub kicks: u32,
    /// Atomic read-modify-writes of the mutex's word.
    pub rmw: u32,
}

/// A mutex without the data it protects.
pub trait RawMutex {
    /// Bound on the bypasses of a waiter. Sleepers are woken in order, but a spinner or a newcomer
    /// may be faster.
    const BYPASS: Bypass;

    /// Returns once the caller owns the mutex.
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> MutexCost;

    /// Takes the mutex if it is free; neither spins nor sleeps.
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<MutexCost>;

    /// Releases the mutex and wakes the CPU that has slept longest. Only the owner may call it.
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> MutexReleaseCost;

    /// Whether the mutex is owned. The answer may be outdated at once.
    fn is_locked(&self) -> bool;
}

/// Decides which CPU may spin for a mutex, and how it accesses the word. Implemented by the systems
/// of this module.
pub trait Spinners {
    /// Whether the word is read first, and a read-modify-write that could not succeed is skipped.
    const READS_FIRST: bool;

    /// Asks to spin. If `true`, the caller may, and must call [`Spinners::leave`] afterwards.
    fn enter<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost) -> bool;

    /// Ends the caller's spinning.
    fn leave<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost);
}

/// A mutex whose spinners are `S`.
#[derive(Debug)]
pub struct Mutex<S> {
    word: AtomicI32,
    /// The owning CPU plus one; zero: none, or not known yet. For spinners only.
    owner: AtomicU32,
    spinners: S,
    sleepers: Sleepers,
}

impl<S> Mutex<S> {
    const fn with(spinners: S) -> Self {
        let (word, owner) = (AtomicI32::new(FREE), AtomicU32::new(0));
        Self { word, owner, spinners, sleepers: Sleepers::new() }
    }
}

impl<S: Default> Default for Mutex<S> {
    fn default() -> Self {
        Self::with(S::default())
    }
}

impl<S: Spinners> Mutex<S> {
    #[inline]
    fn set_owner<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        // Relaxed: a spinner that sees an old owner only checks again.
        self.owner.store(cpu.id as u32 + 1, Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn lock_slow<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost) {
        if self.spinners.enter(cpu, taken) {
            let is_taken = self.spin(cpu, taken);
            self.spinners.leave(cpu, taken);
            if is_taken {
                return;
            }
        }
        self.sleep(cpu, taken);
    }

    /// Spins while the owner runs. Returns whether the caller owns the mutex.
    /// [`Cpu::spin_threshold`] models the end of a time slice.
    fn spin<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost) -> bool {
        let mut remaining = cpu.spin_threshold;
        while remaining > 0 {
            match (self.owner.load(Ordering::Relaxed) as usize).checked_sub(1) {
                Some(owner) if cpu.pv.is_off(owner) => return false,
                Some(_) => (),
                // A release clears the owner before it frees the word, and an acquirer sets it
                // shortly after taking the word: the word is worth a read only without an owner.
                None if self.take_if_free(taken) => return true,
                None => (),
            }
            let spins = cpu.pv.spin(remaining);
            taken.spins += spins;
            remaining -= spins;
        }
        false
    }

    /// A spinner's attempt to take the word.
    fn take_if_free(&self, taken: &mut MutexCost) -> bool {
        if S::READS_FIRST && self.word.load(Ordering::Relaxed) != FREE {
            return false;
        }
        taken.rmw += 1;
        self.take_free()
    }

    #[inline]
    fn take_free(&self) -> bool {
        // Relaxed on failure: nothing is inferred from it.
        self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A sleeper's attempt to take the word, under the list's lock: takes it if it is free, and
    /// marks it as awaited in either case.
    fn take_as_sleeper(&self, taken: &mut MutexCost) -> bool {
        // A negative word already means what the swap would store, and stays negative until the
        // owner's release, which then checks the list.
        if S::READS_FIRST && self.word.load(Ordering::Relaxed) < TAKEN {
            return false;
        }
        taken.rmw += 1;
        self.word.swap(AWAITED, Ordering::Acquire) == FREE
    }

    fn sleep<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost) {
        taken.halts += self.sleepers.lock(cpu);
        self.sleepers.push(cpu);
        // The attempt after queueing; the attempts before sleeping are in the loop.
        let mut is_mine = self.take_as_sleeper(taken);
        while !is_mine {
            is_mine = self.take_as_sleeper(taken);
            if !is_mine {
                self.halt(cpu, taken);
            }
        }
        self.sleepers.remove(cpu);
        if self.sleepers.is_empty() {
            // Others only decrement a taken word or mark it as awaited, and then each of them
            // checks again under this lock.
            self.word.store(TAKEN, Ordering::Relaxed);
        }
        self.sleepers.unlock(cpu);
    }

    /// Releases the list's lock, halts once, and takes it again. May return spuriously.
    fn halt<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost) {
        // Before any CPU can know that this CPU is to be kicked: an interrupt handler that consumes
        // the kick replaces it if it interrupted a wait.
        let outer = cpu.waiters.publish(cpu.id, LockKey::new(self), ASLEEP);
        self.sleepers.unlock(cpu);
        if P::ENABLED {
            taken.halts += 1;
            cpu.pv.lock_spinning(ASLEEP);
        } else {
            cpu.pv.spin_hint();
        }
        // There is no outer wait: this is not an interrupt handler.
        let _ = cpu.waiters.withdraw(cpu.id, outer);
        taken.halts += self.sleepers.lock(cpu);
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> u32 {
        // No CPU can have taken it: the word was negative, and even after the increment not free.
        self.word.store(FREE, Ordering::Release);
        self.sleepers.lock(cpu);
        let first = self.sleepers.first();
        let mut kicks = self.sleepers.unlock(cpu);
        if P::ENABLED
            && let Some(first) = first
        {
            cpu.pv.unlock_kick(first);
            kicks += 1;
        }
        kicks
    }
}

impl<S: Spinners> RawMutex for Mutex<S> {
    const BYPASS: Bypass = Bypass::Unbounded;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> MutexCost {
        let mut taken = MutexCost { rmw: 1, ..MutexCost::default() };
        if self.word.fetch_add(-1, Ordering::Acquire) != FREE {
            taken.slow = true;
            self.lock_slow(cpu, &mut taken);
        }
        self.set_owner(cpu);
        taken
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<MutexCost> {
        if !self.take_free() {
            return None;
        }
        self.set_owner(cpu);
        Some(MutexCost { rmw: 1, ..MutexCost::default() })
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> MutexReleaseCost {
        self.owner.store(0, Ordering::Relaxed);
        // Release is enough: a sleeper either marked the word before this, which shows in the
        // value, or will find the word free.
        let before = self.word.fetch_add(1, Ordering::Release);
        let kicks = if before == TAKEN { 0 } else { self.unlock_slow(cpu) };
        MutexReleaseCost { kicks, rmw: 1 }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }
}

#[cfg(test)]
mod tests;
