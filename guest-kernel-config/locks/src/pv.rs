//! The paravirtual ticketlock.

use crate::ticket::{INC, TicketWord};
use crate::wait::LockKey;
use crate::watch::Looks;
use crate::{Cpu, Place, Pv, RawLock, Released, Taken, Watch};

/// A ticketlock whose waiters halt after [`Cpu::spin_threshold`] looks and are
/// kicked when they are served. Uncontended it costs what the native one does,
/// but for a locked add at the release.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct PvTicketLock(TicketWord);

impl PvTicketLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(TicketWord::new())
    }

    /// One look at the head; `true`: the caller holds the lock.
    #[inline]
    fn served(&self, ticket: u16) -> bool {
        let head = self.0.head();
        if head.ticket() != ticket {
            return false;
        }
        // Clearing is the taker's work: the releaser may not touch the lock
        // after the release.
        if head.flagged() {
            self.0.clear_flag_if_alone(ticket);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn lock_slow<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) -> Taken {
        cpu.watch.spinning(LockKey::of(self).address(), ticket);
        let mut looks = Looks::new(&cpu.watch);
        let mut halts = 0;
        loop {
            for _ in 0..cpu.spin_threshold {
                looks.count(&cpu.watch, ticket);
                if self.served(ticket) {
                    return Taken { slow: true, halts };
                }
                cpu.pv.spin_hint();
            }
            // With a threshold of zero only this looks at the head.
            if self.served(ticket) {
                return Taken { slow: true, halts };
            }
            halts += u32::from(self.wait(cpu, ticket));
            looks.restart();
        }
    }

    /// Halts once, unless the lock turns out to be served. `true`: it halted.
    /// Returning does not mean that the lock is the caller's.
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) -> bool {
        cpu.waiters.publish(cpu.id, LockKey::of(self), ticket);
        cpu.watch.reached(Place::BeforeFlag);
        self.0.set_flag();
        // The last look comes after the flag: either the releaser sees the
        // flag and so the record, or this look sees the release.
        let halt = self.0.head().ticket() != ticket;
        if halt {
            cpu.watch.halting(ticket);
            cpu.watch.reached(Place::FlagToHalt);
            cpu.pv.lock_spinning(ticket);
            cpu.watch.resumed(ticket);
        }
        cpu.waiters.withdraw(cpu.id);
        halt
    }
}

impl RawLock for PvTicketLock {
    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Taken {
        cpu.watch.entering();
        let ticket = self.0.take_ticket();
        let taken =
            if self.served(ticket) { Taken::default() } else { self.lock_slow(cpu, ticket) };
        cpu.watch.taken(LockKey::of(self).address(), ticket);
        taken
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Released {
        let key = LockKey::of(self);
        let head = self.0.release_fetch();
        // The lock may be freed memory now: only its key is used below.
        cpu.watch.released();
        if head.flagged() {
            kick_next(cpu, key, head.ticket().wrapping_add(INC))
        } else {
            Released::default()
        }
    }
}

/// Kicks the halted waiter for ticket `next`. None is found when it still
/// spins, or has seen the release before it halted.
#[cold]
#[inline(never)]
fn kick_next<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, lock: LockKey, next: u16) -> Released {
    // Before the search, so that the time since the release counts it.
    cpu.watch.before_kick();
    match cpu.waiters.find(lock, next) {
        Some(waiter) => {
            cpu.watch.reached(Place::ReleaseToKick);
            cpu.pv.unlock_kick(waiter);
            Released { kicks: 1 }
        }
        None => Released::default(),
    }
}
