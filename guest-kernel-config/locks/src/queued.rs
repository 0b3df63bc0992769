//! The queued lock.

use crate::acquire::Ticketless;
use crate::halt::Waits;
use crate::held::Held;
use crate::queue::Queue;
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// A queue after Mellor-Crummey and Scott (1991) in front of a lock of four bytes: two show whether
/// it is held, two name the last in the queue. Each CPU waits at its own node, so that a release
/// causes a cache miss on one CPU and not on all; only the head of the queue polls the lock. Unlike in Linux's queued
/// spinlocks, the second CPU queues as well: there is no pending bit.
///
/// First in, first out: a CPU that finds a queue joins it. As with tickets, a preempted vCPU in the
/// queue blocks all CPUs behind it, so the lock is for hosts that are not overcommitted. Supports
/// 16383 CPUs; a [`WaitTable`](crate::WaitTable) has nodes for [`MAX_CPUS`](crate::MAX_CPUS), four
/// each. A CPU whose nested interrupt handlers wait for more locks than that waits for the last
/// ones outside the queue, in no order.
#[derive(Debug, Default)]
#[repr(C, align(4))]
pub struct QueuedLock {
    held: Held,
    queue: Queue,
}

impl QueuedLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { held: Held::new(), queue: Queue::new() }
    }
}

impl Ticketless for QueuedLock {
    const FIFO: bool = true;
    /// A CPU that checked before there was a queue may still take the lock once; after that it sees
    /// the queue.
    const BYPASS: Bypass = Bypass::FromQueue;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.queue.is_empty() && self.held.take()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let node = nodes.alloc(cpu.id);
        if let Some(me) = node {
            self.queue.join(nodes, me);
        }
        cpu.watch.queued(LockKey::new(self).address(), node.map(|me| nodes.position(me)));
        let mut spins = Spins::new(&cpu.watch);
        if let Some(me) = node {
            spins.until(cpu, None, || nodes.is_head(me));
        }
        spins.until(cpu, None, || self.held.take());
        if let Some(me) = node {
            // After taking the lock: until then no CPU can bypass the queue.
            self.queue.pass_head(nodes, me, || cpu.pv.spin_hint());
        }
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.held.release_plain();
        false
    }

    crate::queue::waiters_of_queue!(held);
}
