//! The test-and-set lock.

use crate::acquire::Ticketless;
use crate::halt::Waits;
use crate::held::Held;
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// One bit that all waiters try to set: each polls until it is clear, and only then tries
/// (test-and-test-and-set, Rudolph and Segall, ISCA 1984). For comparison with the queues.
///
/// It guarantees no order, and the CPU that has the cache line is at an advantage; a waiter may
/// starve. In return a preempted waiter does not delay others, which under overcommit matters more
/// than fairness, and the number of CPUs is not limited. The lock does not know its waiters: none
/// halts, and [`RawLock::is_contended`](crate::RawLock::is_contended) is always false.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct TestAndSetLock(Held);

impl TestAndSetLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self(Held::new())
    }
}

impl Ticketless for TestAndSetLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;
    const CPUS: u32 = u32::MAX;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.0.take()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        cpu.watch.queued(LockKey::new(self).address(), None);
        settle(cpu);
        let mut spins = Spins::new(&cpu.watch);
        loop {
            spins.count(&cpu.watch, None);
            if self.0.take() {
                return;
            }
            spins.spin(cpu.pv, u32::MAX);
        }
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.0.release_plain();
        false
    }

    fn is_contended(&self) -> bool {
        false
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.0.wait_until_released(|| cpu.pv.spin_hint());
    }
}
