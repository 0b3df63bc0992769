//! The native ticketlock.

use crate::ticket::TicketWord;
use crate::wait::LockKey;
use crate::watch::Looks;
use crate::{Cpu, Pv, RawLock, Released, Taken, Watch};

/// First in, first out; a waiter spins until it is served. What a kernel that
/// does not know it is a guest uses: when a vCPU in the queue is preempted,
/// everybody behind it burns its time slice.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct NativeTicketLock(TicketWord);

impl NativeTicketLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(TicketWord::new())
    }

    #[cold]
    #[inline(never)]
    fn spin<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, ticket: u16) {
        cpu.watch.spinning(LockKey::of(self).address(), ticket);
        let mut looks = Looks::new(&cpu.watch);
        loop {
            looks.count(&cpu.watch, ticket);
            if self.0.head().ticket() == ticket {
                return;
            }
            cpu.pv.spin_hint();
        }
    }
}

impl RawLock for NativeTicketLock {
    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Taken {
        cpu.watch.entering();
        let ticket = self.0.take_ticket();
        let slow = self.0.head().ticket() != ticket;
        if slow {
            self.spin(cpu, ticket);
        }
        cpu.watch.taken(LockKey::of(self).address(), ticket);
        Taken { slow, halts: 0, ticket }
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Released {
        self.0.release_plain();
        cpu.watch.released();
        Released::default()
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.0.wait_until_released(|| cpu.pv.spin_hint());
    }
}
