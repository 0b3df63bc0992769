//! The paravirtual ticketlock.

use crate::halt::Waits;
use crate::handoff::lets_in;
use crate::sync::{AtomicU8, AtomicU16};
use crate::ticket::{TicketWord, lock_constructors};
use crate::wait::{LockKey, THROTTLED};
use crate::watch::Spins;
use crate::width::Width;
use crate::{Acquisition, Bypass, Cpu, MAX_CPUS, Place, Pv, RawLock, Release, Watch};

/// A ticketlock whose waiters halt after [`Cpu::spin_threshold`] spin iterations and are kicked
/// when they are served, as in the series "Paravirtualized ticketlocks" (Linux 2012). Uncontended
/// it costs as much as the native lock, plus a locked add at the release. First in, first out.
///
/// For guests whose vCPUs may be preempted. The low bit of the head is the slowpath flag, so
/// tickets advance in steps of two: 8-bit tickets support 127 CPUs, holder and waiters together,
/// 16-bit tickets 32767; a [`WaitTable`](crate::WaitTable) has room for [`MAX_CPUS`].
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct PvTickets<C>(TicketWord<C>);

/// The PV ticketlock with large tickets.
pub type PvTicketLock = PvTickets<AtomicU16>;

/// The PV ticketlock with small tickets: 127 CPUs.
pub type SmallPvTicketLock = PvTickets<AtomicU8>;

lock_constructors!(PvTickets);

impl<C: Width> PvTickets<C> {
    fn key(&self) -> LockKey {
        LockKey::new(self)
    }

    /// Reads the head once. Returns whether the caller holds the lock.
    #[inline]
    fn check_served<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) -> bool {
        let head = self.0.head();
        if head.ticket() != ticket {
            return false;
        }
        // The acquirer clears the flag: the releaser may not touch the lock after the release.
        if P::ENABLED && head.flagged() {
            let is_awaited = || cpu.waiters.has_throttled(self.key());
            self.0.clear_flag_if_alone(ticket, is_awaited);
        }
        true
    }

    /// Waits until `ticket`, which has been drawn, is served.
    #[inline]
    fn enter<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        ticket: u16,
        waits: &mut Waits,
    ) -> Acquisition {
        let mut slow = waits.halts != 0;
        if !self.check_served(cpu, ticket) {
            slow = true;
            self.lock_slow(cpu, ticket, waits);
        }
        settle(cpu);
        waits.restore_kick(cpu);
        cpu.watch.taken(self.key().address(), C::for_observer(ticket));
        Acquisition { slow, halts: waits.halts, ticket: Some(ticket) }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16, waits: &mut Waits) {
        match C::for_observer(ticket) {
            Some(ticket) => cpu.watch.spinning(self.key().address(), ticket),
            None => cpu.watch.queued(self.key().address(), None),
        }
        let mut spins = Spins::new(&cpu.watch);
        let mut halts = 0;
        let state = cpu.waiters.cpu_state(cpu.id);
        loop {
            let mut remaining = self.spins_before_halt(cpu, ticket, halts);
            while remaining > 0 {
                spins.count(&cpu.watch, C::for_observer(ticket));
                if self.check_served(cpu, ticket) {
                    if cpu.handoff.adapt && halts == 0 {
                        state.adapt(cpu.spin_threshold, false);
                    }
                    return;
                }
                remaining -= spins.spin(cpu.pv, remaining);
            }
            if !P::ENABLED {
                continue;
            }
            // With a threshold of zero the loop above never reads the head.
            if self.check_served(cpu, ticket) {
                return;
            }
            if cpu.handoff.adapt {
                state.adapt(cpu.spin_threshold, true);
            }
            halts += u32::from(self.wait(cpu, ticket, waits));
            spins.restart();
        }
    }

    /// Number of spin iterations before the halt; fewer if the wait is known to end in a halt.
    fn spins_before_halt<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        ticket: u16,
        halts: u32,
    ) -> u32 {
        if !P::ENABLED {
            return u32::MAX;
        }
        let handoff = &cpu.handoff;
        // The CPU that is owed a kick sleeps, and is ahead if this is the same lock.
        if cpu.waiters.cpu_state(cpu.id).is_owing() {
            return 0;
        }
        if handoff.far != 0 && C::distance(self.0.head().ticket(), ticket) >= handoff.far {
            return 0;
        }
        if handoff.predecessor && cpu.pv.predecessor_is_off(self.key().address(), ticket) {
            return 0;
        }
        // After a halt the CPU was kicked, and is served now or soon.
        if handoff.adapt && halts == 0 {
            return cpu.waiters.cpu_state(cpu.id).threshold(cpu.spin_threshold);
        }
        cpu.spin_threshold
    }

    /// Halts once, unless `ticket` is served by then. Returns whether it halted, not whether the
    /// caller holds the lock.
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16, waits: &mut Waits) -> bool {
        let outer = cpu.waiters.publish(cpu.id, self.key(), ticket);
        cpu.watch.reached(Place::BeforeFlag);
        self.0.set_flag();
        // The last check of the head comes after the flag: either the releaser sees the flag and so
        // the record, or this read sees the release.
        let mut halt = self.0.head().ticket() != ticket;
        if halt {
            cpu.watch.halting(C::for_observer(ticket));
            cpu.watch.reached(Place::FlagToHalt);
            halt = cpu.waiters.commit(cpu.id);
            if halt {
                halt_and_send_owed(cpu, ticket);
            }
            cpu.watch.resumed(C::for_observer(ticket));
        }
        waits.record(cpu.waiters.withdraw(cpu.id, outer), halt);
        halt
    }

    /// Waits outside a full queue. Returns when there is room, or after the kick that lets this
    /// CPU in; or spuriously, which only makes the queue longer than it should be.
    #[cold]
    #[inline(never)]
    fn wait_throttled<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, limit: u16, waits: &mut Waits) {
        cpu.watch.throttled(self.key().address(), C::IS_OBSERVABLE);
        let outer = cpu.waiters.publish(cpu.id, self.key(), THROTTLED);
        cpu.watch.reached(Place::BeforeFlag);
        // The holder at this head had not released before the flag was set, or the lock is free.
        let served = self.0.set_flag();
        let mut halt = self.0.queued(served) >= limit;
        if halt {
            cpu.watch.reached(Place::FlagToHalt);
            halt = cpu.waiters.commit(cpu.id);
            if halt {
                halt_and_send_owed(cpu, THROTTLED);
            }
        }
        waits.record(cpu.waiters.withdraw(cpu.id, outer), halt);
    }

    /// Kicks the next in line, and may let a CPU in from outside, after a release that saw the
    /// flag. `ticket` was released when `queued` CPUs were in the queue, the releaser included;
    /// zero: not counted.
    ///
    /// Takes only the lock's key: the lock may be freed memory.
    #[cold]
    #[inline(never)]
    fn kick_next<P: Pv, W: Watch>(
        cpu: &Cpu<'_, P, W>,
        lock: LockKey,
        ticket: u16,
        queued: u16,
    ) -> Release {
        let next = C::after(ticket);
        let mut kicks = 0;
        let mut is_found = false;
        for waiter in cpu.waiters.find(lock, next) {
            is_found = true;
            if !cpu.handoff.claim || cpu.waiters.claim(waiter) {
                cpu.watch.reached(Place::ReleaseToKick);
                kicks += kick_or_owe(cpu, waiter, queued);
            }
        }
        // Other CPUs may wait outside even if this CPU never does.
        let passes = || is_found && cpu.handoff.queue != 0 && cpu.waiters.count_pass(lock);
        // With an empty queue, the waiter found is an accidental match, or new.
        if (queued <= 1 || passes() || lets_in(ticket, C::MASK))
            && let Some((waiter, sleeps)) = cpu.waiters.let_in(lock)
        {
            cpu.waiters.cpu_state(cpu.id).give_place(lock.address());
            if sleeps {
                cpu.watch.reached(Place::ReleaseToKick);
                cpu.pv.unlock_kick(waiter);
                kicks += 1;
            }
        }
        if cpu.handoff.ahead
            && let Some(waiter) = cpu.waiters.find(lock, C::after(next)).next()
        {
            cpu.pv.unlock_kick(waiter);
            kicks += 1;
        }
        Release { kicks }
    }
}

impl<C: Width> RawLock for PvTickets<C> {
    const FIFO: bool = true;
    /// The first step draws the ticket.
    const BYPASS: Bypass = Bypass::FromCall;
    const CPUS: u32 = if C::CPUS < MAX_CPUS as u32 { C::CPUS } else { MAX_CPUS as u32 };
    const TICKETS: u16 = C::MASK;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Acquisition {
        let mut waits = Waits::default();
        if P::ENABLED && cpu.handoff.queue != 0 {
            let state = cpu.waiters.cpu_state(cpu.id);
            let queue_limit = cpu.handoff.queue_limit(state.take_given_place(self.key().address()));
            if self.0.queued(self.0.head()) >= queue_limit {
                self.wait_throttled(cpu, queue_limit, &mut waits);
            }
        }
        cpu.watch.entering(C::for_observer(0).map(|_| self.key().address()));
        let ticket = self.0.take_ticket();
        self.enter(cpu, ticket, &mut waits)
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Acquisition> {
        cpu.watch.entering(C::for_observer(0).map(|_| self.key().address()));
        let Some(ticket) = self.0.draw_if_free() else {
            cpu.watch.try_failed();
            return None;
        };
        Some(self.enter(cpu, ticket, &mut Waits::default()))
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Release {
        if !P::ENABLED {
            self.0.release_plain();
            cpu.watch.released();
            return Release::default();
        }
        let key = self.key();
        // Read now: afterwards the lock may be freed memory.
        let counts_queue = cpu.handoff.queue != 0 || cpu.handoff.fuse;
        let queued = if counts_queue { self.0.queued(self.0.head()) } else { 0 };
        let head = self.0.release_fetch();
        if !head.flagged() {
            cpu.watch.released();
            return Release::default();
        }
        // Before the search, so that the time since the release includes it.
        cpu.watch.before_kick(key.address(), C::for_observer(C::after(head.ticket())));
        cpu.watch.released();
        let released = Self::kick_next(cpu, key, head.ticket(), queued);
        cpu.watch.kicked();
        released
    }

    fn is_contended(&self) -> bool {
        self.0.is_contended()
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.0.wait_until_released(|| cpu.pv.spin_hint());
    }
}

/// Longest queue without owed kicks: the releaser and the waiter that it kicks.
const SHORT_QUEUE: u16 = 2;

/// Kicks `waiter`, or owes it the kick until the next halt. Counts as one kick either way.
fn kick_or_owe<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, waiter: usize, queued: u16) -> u32 {
    // A CPU that owes a kick halts at its next wait, which pays off in a long queue only: two CPUs
    // that pass a lock back and forth should spin (at 1x, measured, unnecessary owed kicks cost
    // 98 % of the throughput).
    if cpu.handoff.fuse && cpu.handoff.queue == 0 && queued > SHORT_QUEUE {
        settle(cpu);
        cpu.waiters.cpu_state(cpu.id).owe(waiter);
    } else {
        cpu.pv.unlock_kick(waiter);
    }
    1
}

/// Halts, and sends an owed kick in the same call. The kick is sent before the debt is cleared,
/// here and in [`settle`]: an interrupt handler in between may wait for the kicked CPU, and must
/// then send the kick, too.
fn halt_and_send_owed<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, ticket: u16) {
    let state = cpu.waiters.cpu_state(cpu.id);
    match state.owed() {
        Some(waiter) => {
            cpu.pv.kick_and_halt(waiter, ticket);
            state.clear_debt();
        }
        None => cpu.pv.lock_spinning(ticket),
    }
}

/// Sends the kick that this CPU owes, if any ([`Handoff::fuse`](crate::Handoff)). Call it before
/// any longer work other than taking locks, and at the end of an interrupt handler.
#[inline]
pub fn settle<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>) {
    let state = cpu.waiters.cpu_state(cpu.id);
    if P::ENABLED
        && cpu.handoff.fuse
        && let Some(waiter) = state.owed()
    {
        cpu.pv.unlock_kick(waiter);
        state.clear_debt();
    }
}
