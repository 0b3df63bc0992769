//! Mutexes with optimistic spinning: who finds one taken spins while its owner runs, and sleeps
//! after that.
//!
//! Four systems share one algorithm and differ in how they look at the word and who may spin
//! ([`Spinners`]): [`BaselineMutex`], [`ReadFirstMutex`], [`OneSpinnerMutex`], [`QueuedMutex`].
//! Sleeping is a halt, waking a kick.
//!
//! The word is 1: free; 0: taken; less: taken, and somebody may sleep for it. All promise mutual
//! exclusion and that no wakeup is lost. The first to sleep is the first to be woken, but is given
//! nothing: it looks once more, and a spinner or a newcomer may have been faster.
//!
//! Not for interrupt handlers; those may come at any time and take spinlocks. A mutex may not be
//! freed before every [`RawMutex::unlock`] has returned.

mod baseline;
mod one_spinner;
mod queued;
mod read_first;
mod sleepers;

pub use baseline::{Baseline, BaselineMutex};
pub use one_spinner::{OneSpinner, OneSpinnerMutex};
pub use queued::{QueuedMutex, SpinQueue};
pub use read_first::{ReadFirst, ReadFirstMutex};

use crate::mutex::sleepers::Sleepers;
use crate::sync::{AtomicI32, AtomicU32, Ordering};
use crate::wait::{ASLEEP, LockKey};
use crate::{Bypass, Cpu, Pv, Watch};

/// The mutex is free.
const FREE: i32 = 1;
/// It is taken, and nobody sleeps.
const TAKEN: i32 = 0;
/// It is taken, and its release has to look for sleepers. So does every other negative value.
const AWAITED: i32 = -1;

/// How an acquisition of a mutex went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MutexTaken {
    /// The mutex was not free at the first look.
    pub slow: bool,
    /// Calls of [`Pv::lock_spinning`], those for the list's own lock included.
    pub halts: u32,
    /// Looks of the optimistic spinner, in its queue (if there is one) and at the owner.
    pub spins: u32,
    /// Atomic read-modify-writes of the mutex's word, of which seed 000 is about.
    pub rmw: u32,
    /// Those of what says who may spin: seed 003's field, or the queue's tail.
    pub beside: u32,
}

/// How a release of a mutex went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MutexReleased {
    /// Calls of [`Pv::unlock_kick`], those for the list's own lock included.
    pub kicks: u32,
    /// Atomic read-modify-writes of the mutex's word.
    pub rmw: u32,
}

/// A mutex without the data it protects.
pub trait RawMutex {
    /// How often a waiter may be passed over. The first to sleep is the first to be woken, and may
    /// find that a spinner or a newcomer was faster.
    const BYPASS: Bypass = Bypass::Unbounded;

    /// Returns when the caller owns the mutex.
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> MutexTaken;

    /// Takes the mutex if it is free now; neither spins nor sleeps.
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<MutexTaken>;

    /// Gives the mutex up, and wakes who has slept for it longest. Only the owner may call it.
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> MutexReleased;

    /// Does anybody own it? An answer, and already the past.
    fn is_locked(&self) -> bool;
}

/// Who may spin for a mutex, and how it looks at the word. Implemented by the systems of this
/// module.
pub trait Spinners {
    /// Is the word read before a read-modify-write, which is left out if it could not succeed?
    const READS_FIRST: bool;

    /// The caller would like to spin. True: it may, and calls [`Spinners::leave`] afterwards.
    fn enter<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexTaken) -> bool;

    /// The caller no longer spins.
    fn leave<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexTaken);
}

/// A mutex whose spinners are `S`.
#[derive(Debug)]
pub struct Mutex<S> {
    word: AtomicI32,
    /// One more than the CPU that owns it; zero: none, or not yet said. For spinners alone.
    owner: AtomicU32,
    spinners: S,
    sleepers: Sleepers,
}

impl<S> Mutex<S> {
    /// A free mutex.
    const fn with(spinners: S) -> Self {
        let (word, owner) = (AtomicI32::new(FREE), AtomicU32::new(0));
        Self { word, owner, spinners, sleepers: Sleepers::new() }
    }
}

impl<S: Spinners> Mutex<S> {
    #[inline]
    fn own<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        // Relaxed: a spinner that sees an old owner looks again, and never trusts what it sees.
        self.owner.store(cpu.id as u32 + 1, Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn lock_slow<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexTaken) {
        if self.spinners.enter(cpu, taken) {
            let is_taken = self.spin(cpu, taken);
            self.spinners.leave(cpu, taken);
            if is_taken {
                return;
            }
        }
        self.sleep(cpu, taken);
    }

    /// Spins while the owner runs; true: the caller owns the mutex. [`Cpu::spin_threshold`]
    /// stands for the end of a time slice.
    fn spin<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexTaken) -> bool {
        for _ in 0..cpu.spin_threshold {
            match (self.owner.load(Ordering::Relaxed) as usize).checked_sub(1) {
                Some(owner) if cpu.pv.is_off(owner) => return false,
                Some(_) => (),
                // A release says so before it frees the word, a taker a little after it took it:
                // only now is the word worth a look.
                None if self.take_if_free(taken) => return true,
                None => (),
            }
            taken.spins += 1;
            cpu.pv.spin_hint();
        }
        false
    }

    /// A spinner's look at the word.
    fn take_if_free(&self, taken: &mut MutexTaken) -> bool {
        if S::READS_FIRST && self.word.load(Ordering::Relaxed) != FREE {
            return false;
        }
        taken.rmw += 1;
        self.take_free()
    }

    #[inline]
    fn take_free(&self) -> bool {
        // Relaxed when it fails: then nothing was learnt that anything leans on.
        self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A sleeper's look at the word, under the list's lock: takes it if it is free, and leaves
    /// word for the release in either case.
    fn take_as_sleeper(&self, taken: &mut MutexTaken) -> bool {
        // A negative word says already what the swap would leave. It stays so while the caller is
        // in the list: only the owner's release makes it free, and then looks into the list.
        if S::READS_FIRST && self.word.load(Ordering::Relaxed) < TAKEN {
            return false;
        }
        taken.rmw += 1;
        self.word.swap(AWAITED, Ordering::Acquire) == FREE
    }

    fn sleep<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexTaken) {
        taken.halts += self.sleepers.lock(cpu);
        self.sleepers.push(cpu);
        // The one before queueing; those before sleeping are in the loop.
        let mut is_mine = self.take_as_sleeper(taken);
        while !is_mine {
            is_mine = self.take_as_sleeper(taken);
            if !is_mine {
                self.halt(cpu, taken);
            }
        }
        self.sleepers.remove(cpu);
        if self.sleepers.is_empty() {
            // Nobody else writes a taken word but to subtract from it or to leave word, both of
            // which are followed by another look under this lock.
            self.word.store(TAKEN, Ordering::Relaxed);
        }
        self.sleepers.unlock(cpu);
    }

    /// Gives up the list's lock, halts once, and takes it again. It may return for no reason.
    fn halt<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexTaken) {
        // Before anybody can know that this CPU is to be kicked: an interrupt handler that takes
        // the kick for its own gives it back if there is a wait around it.
        let outer = cpu.waiters.publish(cpu.id, LockKey::of(self), ASLEEP);
        self.sleepers.unlock(cpu);
        if P::ENABLED {
            taken.halts += 1;
            cpu.pv.lock_spinning(ASLEEP);
        } else {
            cpu.pv.spin_hint();
        }
        // There is no outer wait: this is no interrupt handler.
        let _ = cpu.waiters.withdraw(cpu.id, outer);
        taken.halts += self.sleepers.lock(cpu);
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> u32 {
        // Nobody can have taken it: it was negative, one more is not free.
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
    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> MutexTaken {
        let mut taken = MutexTaken { rmw: 1, ..MutexTaken::default() };
        if self.word.fetch_add(-1, Ordering::Acquire) != FREE {
            taken.slow = true;
            self.lock_slow(cpu, &mut taken);
        }
        self.own(cpu);
        taken
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<MutexTaken> {
        if !self.take_free() {
            return None;
        }
        self.own(cpu);
        Some(MutexTaken { rmw: 1, ..MutexTaken::default() })
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> MutexReleased {
        self.owner.store(0, Ordering::Relaxed);
        // Release is enough: who sleeps either left word before this, which it sees in the value,
        // or will find the word free.
        let was = self.word.fetch_add(1, Ordering::Release);
        let kicks = if was == TAKEN { 0 } else { self.unlock_slow(cpu) };
        MutexReleased { kicks, rmw: 1 }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }
}

#[cfg(test)]
mod tests;
