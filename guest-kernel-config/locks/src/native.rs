//! The native ticketlock.

use crate::ticket::TicketWord;
use crate::{Cpu, Pv, RawLock, Released, Taken};

/// First in, first out; a waiter spins until it is served. What a kernel that
/// does not know it is a guest uses: when a vCPU in the queue is preempted,
/// everybody behind it burns its time slice.
#[derive(Debug, Default)]
pub struct NativeTicketLock(TicketWord);

impl NativeTicketLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(TicketWord::new())
    }
}

impl RawLock for NativeTicketLock {
    #[inline]
    fn lock<P: Pv>(&self, cpu: &Cpu<'_, P>) -> Taken {
        let ticket = self.0.take_ticket();
        if self.0.head().ticket() == ticket {
            return Taken::default();
        }
        while self.0.head().ticket() != ticket {
            cpu.pv.spin_hint();
        }
        Taken { slow: true, halts: 0 }
    }

    #[inline]
    fn unlock<P: Pv>(&self, _: &Cpu<'_, P>) -> Released {
        self.0.release_plain();
        Released::default()
    }
}
