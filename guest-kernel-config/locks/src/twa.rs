//! The ticketlock with a waiting array.

use crate::sync::{AtomicU16, Ordering};
use crate::ticket::{INC, TicketWord};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::width::Cell;
use crate::{Acquisition, Bypass, Cpu, Pv, RawLock, Release, Watch, settle};

/// Largest distance of a waiter that polls the head; the paper's LongTermThreshold.
const NEAR: u16 = 1;

/// A ticketlock whose distant waiters do not poll its head: D. Dice and A. Kogan, "TWA: Ticket
/// Locks Augmented with a Waiting Array" (Euro-Par 2019).
///
/// - A waiter that is not next in line polls the slot of its ticket, in an array that all locks
///   share, and checks the head at each change. Once next in line, it polls the head.
/// - Each release advances the head, then changes the slot of the ticket now next in line.
///
/// So a release causes cache misses on two waiters' CPUs, and not on all. First in, first out: a
/// preempted waiter blocks all CPUs behind it, as in every ticketlock. Supports 32767 CPUs.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct TwaLock(TicketWord<AtomicU16>);

impl TwaLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self(TicketWord::<AtomicU16>::new())
    }

    #[cfg(test)]
    #[allow(dead_code)]
    pub(crate) const fn starting_at(ticket: u16) -> Self {
        Self(TicketWord::<AtomicU16>::starting_at(ticket))
    }

    fn key(&self) -> LockKey {
        LockKey::new(self)
    }

    /// Waits until `ticket` is served.
    #[inline]
    fn enter<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) -> Acquisition {
        let slow = self.0.head().ticket() != ticket;
        if slow {
            self.wait(cpu, ticket);
        }
        cpu.watch.taken(self.key().address(), Some(ticket));
        Acquisition { slow, halts: 0, ticket: Some(ticket) }
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) {
        cpu.watch.spinning(self.key().address(), ticket);
        settle(cpu);
        let mut spins = Spins::new(&cpu.watch);
        let distance = || AtomicU16::distance(self.0.head().ticket(), ticket);
        if distance() > NEAR {
            let slot = cpu.waiters.array.slot(self.key(), ticket);
            loop {
                // Acquire, before the head is read: otherwise the waiter could see an old head,
                // and wait for a change of the slot that has already happened.
                let old = slot.load(Ordering::Acquire);
                if distance() <= NEAR {
                    break;
                }
                spins.until(cpu, Some(ticket), || slot.load(Ordering::Acquire) != old);
            }
        }
        spins.until(cpu, Some(ticket), || distance() == 0);
    }
}

impl RawLock for TwaLock {
    const FIFO: bool = true;
    /// The first step draws the ticket.
    const BYPASS: Bypass = Bypass::FromCall;
    const CPUS: u32 = AtomicU16::CPUS;
    const TICKETS: u16 = AtomicU16::MASK;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Acquisition {
        cpu.watch.entering(Some(self.key().address()));
        let ticket = self.0.take_ticket();
        self.enter(cpu, ticket)
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Acquisition> {
        cpu.watch.entering(Some(self.key().address()));
        let Some(ticket) = self.0.draw_if_free() else {
            cpu.watch.try_failed();
            return None;
        };
        Some(self.enter(cpu, ticket))
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Release {
        let key = self.key();
        let served = self.0.release_plain();
        cpu.watch.released();
        // From here on the lock may be freed memory. Release publishes the head.
        let next = served.wrapping_add(NEAR * INC);
        cpu.waiters.array.slot(key, next).fetch_add(1, Ordering::Release);
        Release::default()
    }

    fn is_contended(&self) -> bool {
        self.0.is_contended()
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.0.wait_until_released(|| cpu.pv.spin_hint());
    }
}
