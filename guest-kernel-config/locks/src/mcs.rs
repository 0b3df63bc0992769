//! The lock of Mellor-Crummey and Scott.

use crate::acquire;
use crate::node::{Gate, NodeId};
use crate::sync::{AtomicU16, MAX_CPUS, Ordering};
use crate::turns::Turns;
use crate::wait::LockKey;
use crate::watch::Looks;
use crate::{Awaited, Bypass, Cpu, Pv, RawLock, Released, Taken, WaitTable, Watch, settle};

/// The lock is free.
const FREE: u16 = 0;
/// The lock is held, and no CPU waits. No node has this name.
const ALONE: u16 = 1;

/// A queue of CPUs, each of which waits at its own node, until the holder hands the lock to the
/// first: J. M. Mellor-Crummey and M. L. Scott, "Algorithms for Scalable Synchronization on
/// Shared-Memory Multiprocessors" (ACM TOCS 1991). The baseline of the scalable locks.
///
/// - A CPU that comes swaps its node's name into the tail, and links its node to the one before.
/// - A holder hands the lock to the node linked to its own; the lock is not free in between.
///
/// In the form of the operating system K42 (M. A. Auslander and others, US patent application
/// 2003/0200457): the lock's own `next` stands for the holder's node, so that a CPU needs a node
/// only while it waits, and may hold any number of locks.
///
/// First in, first out: a preempted waiter blocks all behind it, even if it was only about to link
/// its node, for which a holder has to wait. It counts CPUs as [`QueuedLock`](crate::QueuedLock)
/// does.
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct McsLock {
    /// [`FREE`], [`ALONE`], or the name of the last node in the queue.
    tail: AtomicU16,
    /// The node of the first waiter, once it is linked; zero: none. Zero while the lock is free.
    next: AtomicU16,
    turns: Turns,
}

impl McsLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self { tail: AtomicU16::new(FREE), next: AtomicU16::new(0), turns: Turns::new() }
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
        let nodes = &cpu.waiters.nodes;
        let Some(me) = nodes.begin(cpu.id) else {
            // A nested handler, and all nodes of its CPU are in use: it waits outside of the queue.
            cpu.watch.queued(LockKey::of(self).address(), None);
            return Looks::new(&cpu.watch).until(cpu, None, || self.take_free());
        };
        // Release, for the node that the next CPU links to; acquire, for the previous node and for
        // what was done under a lock that is free now.
        let before = self.tail.swap(me.name(), Ordering::AcqRel);
        if before != FREE {
            match NodeId::parse(before) {
                Some(before) => nodes.link(before, me),
                None => self.next.store(me.name(), Ordering::Release),
            }
            cpu.watch.queued(LockKey::of(self).address(), Some(nodes.awaited_gate(me)));
            Looks::new(&cpu.watch).until(cpu, None, || nodes.gate(me) != Gate::CLOSED);
            self.turns.begin();
        }
        self.put_lock_for(cpu, me);
        nodes.end(me);
    }

    /// The lock's own `next` takes the place of the holder's node `me`.
    fn put_lock_for<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) {
        // Before the tail: from then on the next CPU links to it.
        self.next.store(0, Ordering::Relaxed);
        let last = me.name();
        // Release, for the store above. The lock itself orders what is done under it.
        if self.tail.compare_exchange(last, ALONE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        let next = cpu.waiters.nodes.next(me, || cpu.pv.spin_hint());
        self.next.store(next.name(), Ordering::Relaxed);
    }

    /// The first waiter's node, for the holder to hand the lock to. None: no CPU waited, and the
    /// lock is free.
    fn next_or_free(&self, mut look_again: impl FnMut()) -> Option<NodeId> {
        if let Some(next) = self.next() {
            return Some(next);
        }
        if self.tail.compare_exchange(ALONE, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        // A CPU has swapped the tail, and links itself in its next step.
        loop {
            look_again();
            if let Some(next) = self.next() {
                return Some(next);
            }
        }
    }

    /// Acquire, for the waiter's node.
    fn next(&self) -> Option<NodeId> {
        NodeId::parse(self.next.load(Ordering::Acquire))
    }
}

impl RawLock for McsLock {
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
        if let Some(next) = self.next_or_free(|| cpu.pv.spin_hint()) {
            // From here on the lock may be freed memory.
            cpu.waiters.nodes.open(next, Gate::OPEN);
        }
        cpu.watch.released();
        Released::default()
    }

    fn is_contended(&self) -> bool {
        self.tail.load(Ordering::Relaxed) > ALONE
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        let is_free = || self.tail.load(Ordering::Acquire) == FREE;
        self.turns.wait_until_released(is_free, || cpu.pv.spin_hint());
    }

    fn releases_before(&self, waiters: &WaitTable, awaited: Awaited) -> Option<u16> {
        waiters.nodes.releases_before_gate(awaited, self.next.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handoff, Unwatched};
    use core::cell::Cell;

    #[test]
    fn the_lock_is_eight_bytes() {
        assert_eq!((size_of::<McsLock>(), align_of::<McsLock>()), (8, 8));
    }

    /// All CPUs on one thread: others act while one spins.
    struct Stage {
        lock: McsLock,
        waiters: WaitTable,
        act: Cell<Option<fn(&Stage)>>,
    }

    impl Stage {
        fn cpu(&self, id: usize) -> Cpu<'_, Self> {
            let (waiters, handoff) = (&self.waiters, Handoff::default());
            Cpu { id, spin_threshold: 0, pv: self, waiters, watch: Unwatched, handoff }
        }
    }

    impl Pv for Stage {
        fn spin_hint(&self) {
            (self.act.take().expect("the wait is over"))(self);
        }

        fn lock_spinning(&self, _: u16) {
            panic!("no CPU halts");
        }

        fn unlock_kick(&self, _: usize) {
            panic!("no CPU halts");
        }
    }

    #[test]
    fn a_holder_waits_for_a_waiter_that_is_about_to_link_itself() {
        let stage = Stage {
            lock: McsLock::new(),
            waiters: WaitTable::new(),
            act: Cell::new(Some(|stage| {
                let joined = NodeId::new(1, 0);
                stage.lock.next.store(joined.name(), Ordering::Release);
            })),
        };
        assert!(!stage.lock.lock(&stage.cpu(0)).slow);
        assert!(!stage.lock.is_contended());
        let joined = stage.waiters.nodes.begin(1).expect("none in use");
        stage.lock.tail.store(joined.name(), Ordering::Relaxed);
        assert!(stage.lock.is_contended());
        stage.lock.unlock(&stage.cpu(0));
        assert_eq!(stage.waiters.nodes.gate(joined), Gate::OPEN);
        assert!(stage.lock.try_lock(&stage.cpu(2)).is_none(), "it is CPU 1's");
        stage.lock.put_lock_for(&stage.cpu(1), joined);
        assert!(!stage.lock.is_contended());
        stage.lock.unlock(&stage.cpu(1));
        assert!(stage.lock.try_lock(&stage.cpu(2)).is_some());
    }
}
