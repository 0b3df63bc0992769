//! A ticketlock that draws tickets only with enough of the slice left.

use crate::{Acquisition, Bypass, Cpu, NativeTicketLock, Pv, RawLock, Release, Watch};

/// Time to enter and leave for each CPU that is served up to and including the caller, in
/// [`Pv::ticks`]: `AVERAGE_HOLD_TIME` of the authors' patch, about 13 us.
const PER_CPU: u64 = 1 << 15;

/// The informed spinlock: B. Teabe, V. Nitu, A. Tchana and D. Hagimont, "The lock holder and the
/// lock waiter pre-emption problems: nip them in the bud using informed spinlocks (I-Spinlock)"
/// (EuroSys 2017).
///
/// - A CPU draws a ticket only if the rest of its slice ([`Pv::slice_left`]) suffices for all CPUs
///   ahead of it in the queue and for itself. Otherwise it waits for its next slice, without a
///   ticket.
/// - In its next slice it also draws a ticket if the lock is free. So a lock is also taken on a
///   host where all slices are too short.
/// - With the ticket drawn it is a ticketlock: first in, first out. (The authors' patch leaves the halts of
///   PV ticketlocks in place; the configuration of their evaluation is not known.)
///
/// So holders and waiters are preempted only for reasons that the host does not announce, or if
/// sections are longer than assumed here. The bound on bypasses holds from the ticket on; before
/// that, any number of others may take the lock. On a machine that does not report slices it is a
/// ticketlock. Supports 32767 CPUs.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SliceAwareLock(NativeTicketLock);

impl SliceAwareLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self(NativeTicketLock::new())
    }

    #[cfg(test)]
    #[allow(dead_code)]
    pub(crate) const fn starting_at(ticket: u16) -> Self {
        Self(NativeTicketLock::starting_at(ticket))
    }

    /// Number of CPUs that hold the lock or have a ticket.
    #[inline]
    fn queue_length(&self) -> u16 {
        let word = &self.0.0;
        word.queued(word.head())
    }

    /// Whether `remaining`, the rest of the slice, suffices to draw a ticket now.
    #[inline]
    fn is_enough(&self, remaining: u64) -> bool {
        remaining >= PER_CPU * (u64::from(self.queue_length()) + 1)
    }

    /// Waits until a ticket may be drawn. `remaining` is the rest of the slice just before the call.
    #[cold]
    #[inline(never)]
    fn await_slice<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, mut remaining: u64) {
        let mut is_next_slice = false;
        while !(self.is_enough(remaining) || is_next_slice && self.queue_length() == 0) {
            cpu.pv.spin_hint();
            let before = core::mem::replace(&mut remaining, cpu.pv.slice_left());
            is_next_slice |= remaining > before;
        }
    }
}

impl RawLock for SliceAwareLock {
    const FIFO: bool = true;
    const BYPASS: Bypass = Bypass::FromQueue;
    const CPUS: u32 = NativeTicketLock::CPUS;
    const TICKETS: u16 = NativeTicketLock::TICKETS;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Acquisition {
        let remaining = cpu.pv.slice_left();
        if !self.is_enough(remaining) {
            self.await_slice(cpu, remaining);
        }
        self.0.lock(cpu)
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Acquisition> {
        self.0.try_lock(cpu)
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Release {
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
    use crate::test_stage::Stage;

    /// Takes the lock with `remaining` of a slice; each pause takes 1000 ticks, and later slices have
    /// `NEXT`. Returns the rest of the slice.
    fn slice_left_after_lock<const NEXT: u64>(remaining: u64) -> u64 {
        let stage = Stage::new(SliceAwareLock::new(), |stage, _| {
            stage.slice_left.set(stage.slice_left.get().checked_sub(1_000).unwrap_or(NEXT));
        });
        stage.slice_left.set(remaining);
        assert!(!stage.lock(0).slow);
        stage.unlock(0);
        stage.slice_left.get()
    }

    #[test]
    fn a_short_rest_defers_the_ticket() {
        const NEXT: u64 = 10 * PER_CPU;
        for (remaining, after) in [(PER_CPU, PER_CPU), (PER_CPU - 1, NEXT), (0, NEXT)] {
            assert_eq!(slice_left_after_lock::<NEXT>(remaining), after);
        }
    }

    /// Regression: a CPU whose slices are all too short waited forever.
    #[test]
    fn a_free_lock_is_taken_in_a_new_short_slice() {
        const NEXT: u64 = PER_CPU / 2;
        for remaining in [0, 1_000, NEXT - 1] {
            assert_eq!(slice_left_after_lock::<NEXT>(remaining), NEXT);
        }
    }

    #[test]
    fn the_queue_increases_the_required_slice() {
        let lock = SliceAwareLock::new();
        for _ in 0..3 {
            assert!(lock.is_enough(3 * PER_CPU));
            lock.0.0.take_ticket();
        }
        assert!(!lock.is_enough(3 * PER_CPU), "the fourth is preempted in line");
    }
}
