//! A ticketlock whose tickets are drawn only with enough of a slice left.

use crate::{Bypass, Cpu, NativeTicketLock, Pv, RawLock, Released, Taken, Watch};

/// What a CPU needs to enter and to leave, for each CPU that is served up to it, in [`Pv::ticks`]: some
/// 5 us.
const NEED: u64 = 12_500;

/// The informed spinlock: B. Teabe, V. Nitu, A. Tchana and D. Hagimont, "The lock holder and the lock
/// waiter pre-emption problems: nip them in the bud using informed spinlocks (I-Spinlock)" (EuroSys
/// 2017).
///
/// - A CPU draws a ticket only if what is left of its slice suffices ([`Pv::lasts`]) for all that are
///   before it in the queue, and for itself. Otherwise it waits for its next slice, without a ticket.
/// - Then it is a ticketlock: first in, first out.
///
/// So holders and waiters are preempted only by what the host does not tell beforehand, or if
/// sections are longer than is assumed here. The bound on bypasses holds from the ticket on; before,
/// any number of others may take the lock. On a machine that tells no slice it is a ticketlock. It
/// counts 32767 CPUs.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SliceAwareLock(NativeTicketLock);

impl SliceAwareLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(NativeTicketLock::new())
    }

    /// A free lock whose next ticket is `ticket`.
    #[cfg(test)]
    #[allow(dead_code)]
    pub(crate) const fn starting_at(ticket: u16) -> Self {
        Self(NativeTicketLock::starting_at(ticket))
    }

    /// Is enough left of the slice to draw a ticket now?
    #[inline]
    fn lasts<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        let word = &self.0.0;
        let before = word.queued(word.head());
        cpu.pv.lasts(NEED * (u64::from(before) + 1))
    }

    #[cold]
    #[inline(never)]
    fn await_slice<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        while !self.lasts(cpu) {
            cpu.pv.spin_hint();
        }
    }
}

impl RawLock for SliceAwareLock {
    const FIFO: bool = true;
    const BYPASS: Bypass = Bypass::FromQueue;
    const CPUS: u32 = NativeTicketLock::CPUS;
    const TICKETS: u16 = NativeTicketLock::TICKETS;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Taken {
        if !self.lasts(cpu) {
            self.await_slice(cpu);
        }
        self.0.lock(cpu)
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Taken> {
        self.0.try_lock(cpu)
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Released {
        self.0.unlock(cpu)
    }

    fn is_contended(&self) -> bool {
        self.0.is_contended()
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.0.wait_until_released(cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handoff, Unwatched, WaitTable};
    use core::cell::Cell;

    /// A CPU with this many ticks left of its slice; each pause takes 1000, and a new one has 10 NEEDs.
    struct Slice(Cell<u64>);

    impl Pv for Slice {
        fn spin_hint(&self) {
            self.0.set(self.0.get().checked_sub(1_000).unwrap_or(10 * NEED));
        }

        fn lock_spinning(&self, _: u16) {
            panic!("no CPU halts");
        }

        fn unlock_kick(&self, _: usize) {
            panic!("no CPU halts");
        }

        fn lasts(&self, ticks: u64) -> bool {
            self.0.get() >= ticks
        }
    }

    #[test]
    fn a_ticket_is_drawn_in_the_next_slice_if_this_one_is_nearly_over() {
        let (lock, waiters) = (SliceAwareLock::new(), WaitTable::new());
        for (left, after) in [(NEED, NEED), (NEED - 1, 10 * NEED), (0, 10 * NEED)] {
            let (pv, handoff) = (Slice(Cell::new(left)), Handoff::default());
            let (pv, waiters) = (&pv, &waiters);
            let cpu = Cpu { id: 0, spin_threshold: 0, pv, waiters, watch: Unwatched, handoff };
            assert!(!lock.lock(&cpu).slow);
            assert_eq!(pv.0.get(), after);
            lock.unlock(&cpu);
        }
    }

    #[test]
    fn those_that_queue_are_counted() {
        let (lock, waiters) = (SliceAwareLock::new(), WaitTable::new());
        let (pv, handoff) = (&Slice(Cell::new(3 * NEED)), Handoff::default());
        let waiters = &waiters;
        let cpu = Cpu { id: 0, spin_threshold: 0, pv, waiters, watch: Unwatched, handoff };
        for _ in 0..3 {
            assert!(lock.lasts(&cpu));
            lock.0.0.take_ticket();
        }
        assert!(!lock.lasts(&cpu), "the fourth is preempted in line");
    }
}
