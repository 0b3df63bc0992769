//! The lock of Craig, Landin and Hagersten.

use crate::acquire;
use crate::node::NodeId;
use crate::sync::{AtomicU16, MAX_CPUS, Ordering};
use crate::turns::Turns;
use crate::wait::LockKey;
use crate::watch::Looks;
use crate::{Bypass, Cpu, Pv, RawLock, Released, Taken, Watch, settle};

/// The lock is free.
const FREE: u16 = 0;
/// The lock is held by a CPU without a node: the next one waits at the lock itself.
const ALONE: u16 = 1;

/// A queue without links: each CPU waits at the node of the one before it. After T. S. Craig,
/// "Building FIFO and priority-queuing spin locks from atomic swap" (1993), and P. Magnusson, A.
/// Landin and E. Hagersten, "Queue Locks on Cache Coherent Multiprocessors" (IPPS 1994).
///
/// - A CPU that comes swaps its node's name into the tail, and waits until the node that it finds
///   there is released.
/// - A holder releases its own node. It need not know who waits, so it waits for no CPU that is
///   about to link itself, as the holder of an [`McsLock`](crate::McsLock) may have to.
///
/// Other than published, a CPU keeps its nodes, and the one behind gives a node back once it has
/// seen the release; and a CPU that finds the lock free needs no node. It keeps one while it holds
/// the lock, so a CPU that holds four locks that it has waited for waits for the next one outside
/// of the queue, without order.
///
/// First in, first out: a preempted waiter blocks all behind it. It counts CPUs as
/// [`QueuedLock`](crate::QueuedLock) does.
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct ClhLock {
    /// [`FREE`], [`ALONE`], or the name of the last node in the queue.
    tail: AtomicU16,
    /// Nonzero: the holder without a node has released the lock to the CPU behind.
    is_handed: AtomicU16,
    /// The holder's node, or zero. The holder's.
    node: AtomicU16,
    turns: Turns,
}

impl ClhLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self {
            tail: AtomicU16::new(FREE),
            is_handed: AtomicU16::new(0),
            node: AtomicU16::new(0),
            turns: Turns::new(),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    fn take_free(&self) -> bool {
        acquire::take_zero(&self.tail, ALONE)
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        settle(cpu);
        let nodes = &cpu.waiters.clh_nodes;
        let Some(me) = nodes.begin(cpu.id) else {
            cpu.watch.queued(LockKey::of(self).address());
            return Looks::new(&cpu.watch).until(cpu, None, || self.take_free());
        };
        // Release, for the node; acquire, for what was done under a lock that is free now.
        let before = self.tail.swap(me.name(), Ordering::AcqRel);
        if before != FREE {
            cpu.watch.queued(LockKey::of(self).address());
            self.wait_behind(cpu, before);
            self.turns.begin();
        }
        self.node.store(me.name(), Ordering::Relaxed);
    }

    /// Returns when the CPU that `before` names has released the lock.
    fn wait_behind<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, before: u16) {
        let mut looks = Looks::new(&cpu.watch);
        match NodeId::parse(before) {
            Some(before) => {
                looks.until(cpu, None, || cpu.waiters.clh_nodes.is_released(before));
                cpu.waiters.clh_nodes.give_back(before);
            }
            None => {
                looks.until(cpu, None, || self.is_handed.load(Ordering::Acquire) != 0);
                // Before the release, after which another CPU may take the lock without a node.
                self.is_handed.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl RawLock for ClhLock {
    const FIFO: bool = true;
    const BYPASS: Bypass = Bypass::FromQueue;
    const CPUS: u32 = MAX_CPUS as u32;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Taken {
        acquire::lock(self, cpu, || self.take_free(), || self.wait(cpu))
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Taken> {
        acquire::try_lock(self, cpu, || self.take_free())
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Released {
        let node = NodeId::parse(self.node.load(Ordering::Relaxed));
        let name = node.map_or(ALONE, NodeId::name);
        if node.is_some() {
            self.node.store(0, Ordering::Relaxed);
        }
        // From here on the lock may be freed memory, unless a CPU waits at it.
        let is_free =
            self.tail.compare_exchange(name, FREE, Ordering::Release, Ordering::Relaxed).is_ok();
        match node {
            Some(node) if is_free => cpu.waiters.clh_nodes.give_back(node),
            Some(node) => cpu.waiters.clh_nodes.release(node),
            None if is_free => {}
            None => self.is_handed.store(1, Ordering::Release),
        }
        cpu.watch.released();
        Released::default()
    }

    fn is_contended(&self) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        tail > ALONE && tail != self.node.load(Ordering::Relaxed)
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        let is_free = || self.tail.load(Ordering::Acquire) == FREE;
        self.turns.wait_until_released(is_free, || cpu.pv.spin_hint());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_eight_bytes() {
        assert_eq!((size_of::<ClhLock>(), align_of::<ClhLock>()), (8, 8));
    }
}
