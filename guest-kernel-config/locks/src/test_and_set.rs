//! The test-and-set lock.

use crate::held::Held;
use crate::wait::LockKey;
use crate::watch::Looks;
use crate::{Bypass, Cpu, Pv, RawLock, Released, Taken, Watch, settle};

/// One bit that all waiters try to set: each looks until it is clear, and only then tries
/// (test-and-test-and-set, Rudolph and Segall, ISCA 1984). For comparison with the queues.
///
/// It guarantees no order, and the CPU that has the cache line is at an advantage; a waiter may
/// starve. In return a preempted waiter does not delay others, which under overcommit is worth more
/// than fairness, and it counts any number of CPUs. It does not know its waiters: none halts, and
/// [`RawLock::is_contended`] is always false.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct TestAndSetLock(Held);

impl TestAndSetLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(Held::new())
    }

    #[cold]
    #[inline(never)]
    fn spin<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        cpu.watch.queued(LockKey::of(self).address(), None);
        settle(cpu);
        let mut looks = Looks::new(&cpu.watch);
        loop {
            looks.count(&cpu.watch, None);
            if self.0.take() {
                return;
            }
            looks.spin(cpu.pv, u32::MAX);
        }
    }
}

impl RawLock for TestAndSetLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;
    const CPUS: u32 = u32::MAX;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Taken {
        cpu.watch.entering(None);
        let slow = !self.0.take();
        if slow {
            self.spin(cpu);
        }
        cpu.watch.taken(LockKey::of(self).address(), None);
        Taken { slow, ..Taken::default() }
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Taken> {
        if !self.0.take() {
            return None;
        }
        cpu.watch.taken(LockKey::of(self).address(), None);
        Some(Taken::default())
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Released {
        self.0.release_plain();
        cpu.watch.released();
        Released::default()
    }

    fn is_contended(&self) -> bool {
        false
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.0.wait_until_released(|| cpu.pv.spin_hint());
    }
}
