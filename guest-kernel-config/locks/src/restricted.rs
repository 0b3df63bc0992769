//! Any lock, with a limit on the CPUs that hold or await it at once.

use crate::adaptive::AdaptiveLimit;
use crate::halt::{self, Waits};
use crate::handoff::LET_IN_EVERY;
use crate::sync::{AtomicU16, MAX_CPUS, Ordering};
use crate::wait::LockKey;
use crate::{Acquisition, Bypass, Cpu, Handoff, Position, Pv, RawLock, Release, WaitTable, Watch};

/// A CPU halts outside, or is about to halt. The low bit of the count.
const AWAITED: u16 = 1;
/// One CPU inside. This and the higher bits count the CPUs inside.
const ONE_INSIDE: u16 = 2;

/// At most [`Handoff::restrict`] CPUs hold the inner lock or wait for it; the others halt outside until
/// they are let in. After D. Dice and A. Kogan, "Avoiding Scalability Collapse by Restricting
/// Concurrency" (Euro-Par 2019).
///
/// - An arriving CPU goes in if there is room, and halts outside otherwise.
/// - A release that leaves no CPU inside lets in the CPU that has waited outside longest, and so does
///   every 8192nd release, even if others are inside.
///
/// With [`Handoff::ADAPTIVE`] the lock determines the limit: a handover to a CPU that is not running
/// shows that too many are inside.
///
/// Under overcommit a lock whose waiters are served in order needs every waiter's CPU in every round,
/// so no more CPUs should wait than run at once. A CPU that is let in exceeds the limit by one until
/// the next CPU leaves, and so do `try_lock` and spurious wakeups.
///
/// Once a CPU is inside, the bound on bypasses is the inner lock's; for CPUs outside see
/// [`Handoff::restricted_bypasses`]. `queue:N` is this rule for PV ticketlocks, with the tickets as the
/// count.
///
/// Without PV no CPU can halt, and this behaves like the inner lock.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Restricted<L> {
    /// [`AWAITED`] and the number of CPUs inside. First, so that its address differs from the inner
    /// lock's: waiters' records identify locks by their addresses.
    inside: AtomicU16,
    /// Number of releases; wraps. Written by the holder.
    releases: AtomicU16,
    adaptive: AdaptiveLimit,
    lock: L,
}

/// [`Restricted`] around the native ticketlock.
pub type RestrictedTicketLock = Restricted<crate::NativeTicketLock>;

impl RestrictedTicketLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self::around(crate::NativeTicketLock::new())
    }

    #[cfg(test)]
    #[allow(dead_code)]
    pub(crate) const fn starting_at(ticket: u16) -> Self {
        Self::around(crate::NativeTicketLock::starting_at(ticket))
    }
}

impl<L> Restricted<L> {
    /// Wraps `lock`, without a CPU inside.
    pub const fn around(lock: L) -> Self {
        let [inside, releases] = [const { AtomicU16::new(0) }; 2];
        Self { inside, releases, adaptive: AdaptiveLimit::new(), lock }
    }

    /// Whether a CPU with these settings may go in while `inside` are inside. True if `inside` is zero.
    #[inline]
    fn has_room(&self, inside: u16, handoff: &Handoff) -> bool {
        match handoff.restrict {
            0 => true,
            Handoff::ADAPTIVE => inside < self.adaptive.limit(),
            limit => inside < limit,
        }
    }

    /// Records that the calling CPU has got the lock.
    #[inline]
    fn adapt<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, has_waited_inside: bool) {
        if cpu.handoff.restrict == Handoff::ADAPTIVE {
            let inside = self.inside.load(Ordering::Relaxed) / ONE_INSIDE;
            self.adaptive.record_acquisition(cpu.pv.ticks(), has_waited_inside, inside);
        }
    }

    fn key(&self) -> LockKey {
        LockKey::new(self)
    }

    /// Goes in if there is room. Relaxed: the inner lock orders the accesses under it.
    #[inline]
    fn try_enter(&self, handoff: &Handoff) -> bool {
        let mut word = self.inside.load(Ordering::Relaxed);
        while self.has_room(word / ONE_INSIDE, handoff) {
            let entered = word.wrapping_add(ONE_INSIDE);
            let result =
                self.inside.compare_exchange(word, entered, Ordering::Relaxed, Ordering::Relaxed);
            match result {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Waits outside, then goes in: after it was let in, or because there is room, or after a spurious
    /// wakeup, which only puts one CPU more inside.
    #[cold]
    #[inline(never)]
    fn wait_throttled<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, waits: &mut Waits) {
        waits.wait_throttled(cpu, self.key(), || {
            // A full barrier after the record: the last of the CPUs counted here has not left yet, and
            // sees the flag when it leaves.
            let word = self.inside.fetch_or(AWAITED, Ordering::SeqCst);
            !self.has_room(word / ONE_INSIDE, &cpu.handoff)
        });
        self.inside.fetch_add(ONE_INSIDE, Ordering::SeqCst);
        self.clear_flag_if_unneeded(cpu);
    }

    /// Clears the flag, from inside, if no other CPU waits outside. A CPU that comes to wait at the
    /// same time has published its record before it set the flag: the second check sees the record, and
    /// the flag is set again before this CPU leaves.
    fn clear_flag_if_unneeded<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        if cpu.waiters.has_throttled(self.key()) {
            return;
        }
        self.inside.fetch_and(!AWAITED, Ordering::SeqCst);
        if cpu.waiters.has_throttled(self.key()) {
            self.inside.fetch_or(AWAITED, Ordering::SeqCst);
        }
    }

    /// Leaves, before the holder's release. Returns whether the holder must then let a CPU in.
    fn leave(&self) -> bool {
        let releases = self.releases.load(Ordering::Relaxed).wrapping_add(1);
        self.releases.store(releases, Ordering::Relaxed);
        let word = self.inside.fetch_sub(ONE_INSIDE, Ordering::SeqCst);
        let is_last = word / ONE_INSIDE == 1;
        word & AWAITED != 0 && (is_last || releases.is_multiple_of(LET_IN_EVERY))
    }
}

impl<L: RawLock> RawLock for Restricted<L> {
    const FIFO: bool = false;
    /// For CPUs outside it depends on the settings, see [`Handoff::restricted_bypasses`].
    const BYPASS: Bypass = L::BYPASS;
    const CPUS: u32 = if L::CPUS < MAX_CPUS as u32 { L::CPUS } else { MAX_CPUS as u32 };
    const TICKETS: u16 = L::TICKETS;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Acquisition {
        if !P::ENABLED {
            return self.lock.lock(cpu);
        }
        let mut waits = Waits::default();
        let is_inside = self.try_enter(&cpu.handoff);
        if !is_inside {
            self.wait_throttled(cpu, &mut waits);
        }
        let taken = self.lock.lock(cpu);
        self.adapt(cpu, is_inside && taken.slow);
        waits.restore_kick(cpu);
        let slow = taken.slow || waits.halts != 0;
        Acquisition { slow, halts: taken.halts + waits.halts, ..taken }
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Acquisition> {
        let taken = self.lock.try_lock(cpu)?;
        if P::ENABLED {
            self.inside.fetch_add(ONE_INSIDE, Ordering::SeqCst);
            self.adapt(cpu, false);
        }
        Some(taken)
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Release {
        if !P::ENABLED {
            return self.lock.unlock(cpu);
        }
        let key = self.key();
        if cpu.handoff.restrict == Handoff::ADAPTIVE {
            self.adaptive.record_release(cpu.pv.ticks());
        }
        let lets_in = self.leave();
        // From here on the lock may be freed memory.
        let mut released = self.lock.unlock(cpu);
        if lets_in {
            released.kicks += halt::let_in(cpu, key).kicks;
        }
        released
    }

    fn is_contended(&self) -> bool {
        self.inside.load(Ordering::Relaxed) & AWAITED != 0 || self.lock.is_contended()
    }

    fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        self.lock.releases_before(waiters, position)
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.lock.wait_until_released(cpu);
    }
}
