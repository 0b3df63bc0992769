//! The MCS lock (Mellor-Crummey and Scott).

use crate::acquire::Ticketless;
use crate::halt::Waits;
use crate::handed::HandedQueue;
use crate::node::Gate;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// A queue whose CPUs each wait at their own node until the holder hands the lock to the first:
/// J. M. Mellor-Crummey and M. L. Scott, "Algorithms for Scalable Synchronization on Shared-Memory
/// Multiprocessors" (ACM TOCS 1991). The baseline of the scalable locks.
///
/// - An arriving CPU swaps its node's name into the tail, and links its node to its predecessor's.
/// - A holder hands the lock to the node linked to its own; the lock is not free in between.
///
/// This is the form of the operating system K42: a CPU needs a node only while it waits.
///
/// First in, first out: a preempted waiter blocks all CPUs behind it, even if it was only about to
/// link its node: the holder has to wait for the link. Supports as many CPUs as
/// [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct McsLock(HandedQueue);

impl McsLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self(HandedQueue::new())
    }
}

impl Ticketless for McsLock {
    const FIFO: bool = true;
    const BYPASS: Bypass = Bypass::FromQueue;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.0.take_free()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        if let Some(me) = self.0.wait(cpu, |_, _| {}) {
            self.0.replace_node(cpu, me);
            cpu.waiters.nodes.free(me);
        }
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        if let Some(next) = self.0.next_or_free(|| cpu.pv.spin_hint()) {
            // From here on the lock may be freed memory.
            cpu.waiters.nodes.open(next, Gate::OPEN);
        }
        false
    }

    crate::handed::waiters_of_handed_queue!(0);
}
