//! The native ticketlock.

use crate::sync::{AtomicU8, AtomicU16};
use crate::ticket::{TicketWord, lock_constructors};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::width::Width;
use crate::{Acquisition, Bypass, Cpu, Pv, RawLock, Release, Watch, settle};

/// First in, first out; a waiter spins until it is served. The lock of a kernel
/// that does not know that it is a guest: when a vCPU in the queue is preempted,
/// all waiters behind it spin through their slices. It is the lock that the series
/// "Paravirtualized ticketlocks" (Linux 2012) starts from.
///
/// It supports 32767 CPUs with 16-bit tickets and 127 with 8-bit tickets: tickets
/// advance in steps of two, as in the PV lock, whose fast path it shares.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct NativeTickets<C>(pub(crate) TicketWord<C>);

/// The native ticketlock with large tickets: 32767 CPUs.
pub type NativeTicketLock = NativeTickets<AtomicU16>;

/// The native ticketlock with small tickets: 127 CPUs.
pub type SmallNativeTicketLock = NativeTickets<AtomicU8>;

lock_constructors!(NativeTickets);

impl<C: Width> NativeTickets<C> {
    /// Waits until `ticket` is served.
    #[inline]
    fn enter<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) -> Acquisition {
        let slow = self.0.head().ticket() != ticket;
        if slow {
            self.spin(cpu, ticket);
        }
        cpu.watch.taken(LockKey::new(self).address(), C::for_observer(ticket));
        Acquisition { slow, halts: 0, ticket: Some(ticket) }
    }

    #[cold]
    #[inline(never)]
    fn spin<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) {
        match C::for_observer(ticket) {
            Some(ticket) => cpu.watch.spinning(LockKey::new(self).address(), ticket),
            None => cpu.watch.queued(LockKey::new(self).address(), None),
        }
        settle(cpu);
        let mut spins = Spins::new(&cpu.watch);
        loop {
            spins.count(&cpu.watch, C::for_observer(ticket));
            if self.0.head().ticket() == ticket {
                return;
            }
            spins.spin(cpu.pv, u32::MAX);
        }
    }
}

impl<C: Width> RawLock for NativeTickets<C> {
    const FIFO: bool = true;
    /// The first step draws the ticket.
    const BYPASS: Bypass = Bypass::FromCall;
    const CPUS: u32 = C::CPUS;
    const TICKETS: u16 = C::MASK;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Acquisition {
        cpu.watch.entering(C::for_observer(0).map(|_| LockKey::new(self).address()));
        let ticket = self.0.take_ticket();
        self.enter(cpu, ticket)
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Acquisition> {
        cpu.watch.entering(C::for_observer(0).map(|_| LockKey::new(self).address()));
        let Some(ticket) = self.0.draw_if_free() else {
            cpu.watch.try_failed();
            return None;
        };
        Some(self.enter(cpu, ticket))
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Release {
        self.0.release_plain();
        cpu.watch.released();
        Release::default()
    }

    fn is_contended(&self) -> bool {
        self.0.is_contended()
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.0.wait_until_released(|| cpu.pv.spin_hint());
    }
}
