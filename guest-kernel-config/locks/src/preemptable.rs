//! The preemptable ticketlock.

use crate::halt::{self, Waits};
use crate::held::Held;
use crate::sync::{AtomicU16, MAX_CPUS, Ordering};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::width::Cell;
use crate::{Acquisition, Bypass, Cpu, Place, Pv, RawLock, Release, Watch, settle};

/// Spin iterations per place ahead after which a waiter tries out of order: the value of version 3.0 of the authors'
/// patch. The paper's evaluation had 16384 (version 1.0).
const SPINS_PER_PLACE: u32 = 512;

/// Tickets determine the order of attempts, a separate word whether the lock is held: so a waiter
/// may take the lock out of order if the waiters ahead of it do not. After J. Ouyang and
/// J. R. Lange, "Preemptable Ticket Spinlocks" (VEE 2013).
///
/// - The head counts releases. A waiter whose ticket it has reached or passed tries whenever the
///   lock is free.
/// - A waiter N places behind also tries when the head has not moved for N times 512 spin
///   iterations: the waiter behind an absent waiter first. From then on it tries until it has the lock.
/// - Mutual exclusion rests on the word only, a test-and-set, regardless of the tickets.
///
/// First in, first out as long as no waiter is late, which is not guaranteed. For overcommitted
/// guests; a preempted waiter delays each handoff by 512 spin iterations until it runs again. With
/// `PV`, a waiter halts after [`Cpu::spin_threshold`] spin iterations, and a release kicks the
/// waiter that has waited longest, which tries at once, regardless of its place.
///
/// Supports [`MAX_CPUS`] CPUs: a larger distance means that the head has passed the waiter.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PreemptableTickets<const PV: bool> {
    /// Written by the holder alone, before it releases.
    head: AtomicU16,
    tail: AtomicU16,
    held: Held,
}

/// A preemptable ticketlock whose waiters spin.
pub type PreemptableTicketLock = PreemptableTickets<false>;

/// A preemptable ticketlock whose waiters halt.
pub type PvPreemptableTicketLock = PreemptableTickets<true>;

struct Waiter {
    ticket: u16,
    /// The head when it was last seen to move, and the spin iterations since then.
    head: u16,
    spins: u32,
    /// Its turn, its timeout or a kick has come.
    is_trying: bool,
    /// The waiter has published a record: other halted waiters may rely on it to kick them.
    has_halted: bool,
}

impl Waiter {
    const fn new(ticket: u16, head: u16) -> Self {
        Self { ticket, head, spins: 0, is_trying: false, has_halted: false }
    }

    /// Updates the head. Returns whether it is time to try.
    fn may_try(&mut self, head: u16) -> bool {
        if head != self.head {
            (self.head, self.spins) = (head, 0);
        }
        self.spins = self.spins.saturating_add(1);
        let ahead = AtomicU16::distance(head, self.ticket);
        // No queue is that long: the head has passed the ticket.
        let is_passed = usize::from(ahead) > MAX_CPUS;
        self.is_trying |= is_passed || self.spins > SPINS_PER_PLACE * u32::from(ahead);
        self.is_trying
    }

    /// Number of further spin iterations with the same decision if they see the same head.
    fn identical_spins(&self) -> u32 {
        let ahead = AtomicU16::distance(self.head, self.ticket);
        let limit = SPINS_PER_PLACE * u32::from(ahead);
        if self.is_trying { u32::MAX } else { limit.saturating_sub(self.spins) }
    }

    /// Counts spin iterations that were skipped because they would have seen the same head.
    fn add_skipped(&mut self, spins: u32) {
        self.spins = self.spins.saturating_add(spins);
    }
}

impl<const PV: bool> PreemptableTickets<PV> {
    /// Distance between two tickets, as in all ticketlocks.
    const INC: u16 = crate::ticket::INC;

    /// Creates a free lock.
    pub const fn new() -> Self {
        Self::at(0)
    }

    #[cfg(test)]
    #[allow(dead_code)]
    pub(crate) const fn starting_at(ticket: u16) -> Self {
        Self::at(ticket)
    }

    const fn at(ticket: u16) -> Self {
        Self { head: AtomicU16::new(ticket), tail: AtomicU16::new(ticket), held: Held::new() }
    }

    fn key(&self) -> LockKey {
        LockKey::new(self)
    }

    /// Relaxed, like all accesses to tickets: they are advice, and publish nothing.
    #[inline]
    fn head(&self) -> u16 {
        self.head.load(Ordering::Relaxed)
    }

    #[inline]
    fn draw(&self) -> u16 {
        self.tail.fetch_add(Self::INC, Ordering::Relaxed)
    }

    /// Number of CPUs that hold or want the lock.
    fn queued(&self) -> u16 {
        let head = self.head();
        AtomicU16::distance(head, self.tail.load(Ordering::Relaxed))
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16, waits: &mut Waits) {
        settle(cpu);
        // No ticket for the observer: the served ticket need not be the head.
        cpu.watch.queued(self.key().address(), None);
        let mut spins = Spins::new(&cpu.watch);
        let mut waiter = Waiter::new(ticket, self.head());
        loop {
            if self.spin(cpu, &mut waiter, &mut spins) || self.halt(cpu, &mut waiter, waits) {
                return;
            }
            spins.restart();
        }
    }

    /// Spins up to the threshold, at least once. Returns whether the caller has the lock.
    fn spin<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        waiter: &mut Waiter,
        spins: &mut Spins,
    ) -> bool {
        let mut remaining = cpu.spin_threshold;
        loop {
            spins.count(&cpu.watch, None);
            if waiter.may_try(self.head()) && self.try_take(waiter) {
                return true;
            }
            let halts = PV && P::ENABLED;
            if halts && remaining == 0 {
                return false;
            }
            let max = if halts { remaining } else { u32::MAX };
            let spun = spins.spin(cpu.pv, max.min(waiter.identical_spins().saturating_add(1)));
            waiter.add_skipped(spun - 1);
            remaining = remaining.saturating_sub(spun);
        }
    }

    /// Tries to take the lock. A waiter that has published a record may have been kicked on behalf
    /// of other halted waiters: it takes the lock with the flag set, so that its release kicks the
    /// next of them, or sets the flag for the holder.
    fn try_take(&self, waiter: &Waiter) -> bool {
        if waiter.has_halted {
            !self.held.is_held() && self.held.take_or_request_kick()
        } else {
            self.held.take()
        }
    }

    /// Halts once, unless the lock is free. Returns whether the caller has taken it instead,
    /// possibly out of order, because a halt would take longer.
    fn halt<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        waiter: &mut Waiter,
        waits: &mut Waits,
    ) -> bool {
        waiter.has_halted = true;
        let is_held =
            waits.halt_unless(cpu, self.key(), waiter.ticket, || self.held.take_or_request_kick());
        // It was kicked to take the lock.
        waiter.is_trying = true;
        !is_held
    }

    /// Kicks the halted waiter that has waited longest, after a release that saw the flag. `next`
    /// is the head. Takes only the lock's key: the lock may be freed memory.
    #[cold]
    #[inline(never)]
    fn kick_one<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, lock: LockKey, next: u16) -> Release {
        // Negative for tickets that the head has passed.
        let place = |(_, ticket): &(usize, u16)| ticket.wrapping_sub(next) as i16;
        let Some((waiter, _)) = cpu.waiters.awaiting(lock).min_by_key(place) else {
            return Release::default();
        };
        cpu.watch.reached(Place::ReleaseToKick);
        cpu.pv.unlock_kick(waiter);
        Release { kicks: 1 }
    }
}

impl<const PV: bool> RawLock for PreemptableTickets<PV> {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;
    const CPUS: u32 = MAX_CPUS as u32;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Acquisition {
        cpu.watch.entering(None);
        let mut waits = Waits::default();
        let ticket = self.draw();
        let slow = self.head() != ticket || !self.held.take();
        if slow {
            self.wait(cpu, ticket, &mut waits);
            waits.restore_kick(cpu);
        }
        cpu.watch.taken(self.key().address(), None);
        Acquisition { slow, halts: waits.halts, ticket: None }
    }

    /// The ticket is drawn afterwards, so that there is one for each release.
    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Acquisition> {
        if self.queued() > 0 || !self.held.take() {
            return None;
        }
        self.draw();
        cpu.watch.taken(self.key().address(), None);
        Some(Acquisition::default())
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Release {
        let key = self.key();
        let next = self.head().wrapping_add(Self::INC);
        self.head.store(next, Ordering::Relaxed);
        let is_awaited = if PV && P::ENABLED {
            self.held.release_clearing()
        } else {
            self.held.release_plain();
            false
        };
        halt::after_release(cpu, key, is_awaited, || Self::kick_one(cpu, key, next))
    }

    fn is_contended(&self) -> bool {
        self.queued() > 1
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.held.wait_until_released(|| cpu.pv.spin_hint());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::{Stage, Step};

    /// Number of spin iterations before `waiter` tries.
    fn spins_to_try(mut waiter: Waiter, head: u16) -> u32 {
        (0..).find(|_| waiter.may_try(head)).expect("it tries in the end")
    }

    #[test]
    fn spins_are_proportional_to_the_place() {
        assert_eq!(spins_to_try(Waiter::new(6, 6), 6), 0);
        assert_eq!(spins_to_try(Waiter::new(8, 6), 6), SPINS_PER_PLACE);
        assert_eq!(
            spins_to_try(Waiter::new(2, 0xfffa), 0xfffa),
            4 * SPINS_PER_PLACE,
            "over the wrap"
        );
    }

    #[test]
    fn spins_restart_when_the_head_moves() {
        let mut waiter = Waiter::new(8, 4);
        for _ in 0..2 * SPINS_PER_PLACE {
            assert!(!waiter.may_try(4));
        }
        assert_eq!(spins_to_try(Waiter::new(8, 4), 6), SPINS_PER_PLACE);
        assert!(waiter.may_try(4) && waiter.may_try(6), "until it has the lock");
    }

    fn stage<const PV: bool>() -> Stage<PreemptableTickets<PV>> {
        let lock = PreemptableTickets::starting_at(0xfffc);
        let stage = Stage::new(lock, |_, step| assert_eq!(step, Step::Pause, "the lock is free"));
        Stage { spin_threshold: 20, ..stage }
    }

    /// Number of pauses until CPU `id` has the lock.
    fn pauses<const PV: bool>(stage: &Stage<PreemptableTickets<PV>>, id: usize) -> u32 {
        stage.pauses.set(0);
        stage.lock(id);
        stage.unlock(id);
        stage.pauses.get()
    }

    #[test]
    fn an_absent_waiter_only_delays_others() {
        let stage = stage::<false>();
        let absent = stage.lock.draw();
        for _ in 0..3 {
            assert_eq!(pauses(&stage, 1), SPINS_PER_PLACE);
        }
        assert!(!stage.try_lock(1), "another CPU waits for it");
        let mut late = Waiter::new(absent, absent);
        assert!(late.may_try(stage.lock.head()) && stage.lock.try_take(&late), "it was passed");
        stage.unlock(0);
        assert_eq!(pauses(&stage, 1), 0, "all are there again");
        assert!(stage.try_lock(1));
    }

    #[test]
    fn a_waiter_takes_a_free_lock_before_it_halts() {
        let stage = stage::<true>();
        stage.lock.draw();
        assert_eq!(pauses(&stage, 1), 20, "out of order, and before its spins are used up");
    }
}
