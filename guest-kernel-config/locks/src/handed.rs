//! A lock that is handed from node to node along a queue.

use crate::acquire;
use crate::handovers::Handovers;
use crate::node::{Gate, NodeId, Nodes};
use crate::sync::{AtomicU16, Ordering};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Cpu, Position, Pv, WaitTable, Watch};

const FREE: u16 = 0;
/// The lock is held, and no CPU waits. No node has this name.
pub(crate) const ALONE: u16 = 1;

/// The waiter methods of [`RawLock`](crate::RawLock), for a lock with a [`HandedQueue`] in the
/// field `$queue`.
macro_rules! waiters_of_handed_queue {
    ($queue:tt) => {
        fn is_contended(&self) -> bool {
            self.$queue.is_contended()
        }

        fn wait_until_released<P: $crate::Pv, W: $crate::Watch>(
            &self,
            cpu: &$crate::Cpu<'_, P, W>,
        ) {
            self.$queue.wait_until_released(cpu);
        }

        fn releases_before(
            &self,
            waiters: &$crate::WaitTable,
            position: $crate::Position,
        ) -> Option<u16> {
            self.$queue.releases_before(waiters, position)
        }
    };
}
pub(crate) use waiters_of_handed_queue;

/// The lock of Mellor-Crummey and Scott in the form of the operating system K42 (M. A. Auslander
/// and others, US patent application 2003/0200457): the lock's own `next` replaces the holder's
/// node, so that a CPU needs a node only while it waits, and may hold any number of locks.
///
/// It must be first in a lock's memory: its address is the lock's.
///
/// A CPU calls [`take_free`](Self::take_free). If that fails, it calls [`join`](Self::join) with
/// one of its nodes, waits at the node's [`Gate`] if that returns `true`, and then replaces the
/// node by the lock's `next` ([`replace_node`](Self::replace_node)). A holder calls
/// [`next_or_free`](Self::next_or_free), and opens the gate of the node that it returns.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct HandedQueue {
    /// [`FREE`], [`ALONE`], or the name of the last node in the queue.
    tail: AtomicU16,
    /// The node to hand the lock to, once it is known; zero: none. Zero while the lock is free.
    next: AtomicU16,
    handovers: Handovers,
}

impl HandedQueue {
    pub(crate) const fn new() -> Self {
        Self { tail: AtomicU16::new(FREE), next: AtomicU16::new(0), handovers: Handovers::new() }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn take_free(&self) -> bool {
        acquire::take_zero(&self.tail, ALONE)
    }

    /// Adds `me` to the queue. Returns `false` if the lock was free, and is taken now.
    pub(crate) fn join<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) -> bool {
        let nodes = &cpu.waiters.nodes;
        // Release, for the node that the next CPU links to; acquire, for the previous node and, if
        // the lock is free now, for earlier holders' writes.
        let before = self.tail.swap(me.name(), Ordering::AcqRel);
        if before == FREE {
            return false;
        }
        match NodeId::parse(before) {
            Some(before) => nodes.link(before, me),
            None => self.next.store(me.name(), Ordering::Release),
        }
        cpu.watch.queued(LockKey::new(self).address(), Some(nodes.gate_position(me)));
        true
    }

    pub(crate) fn record_handover(&self) {
        self.handovers.record();
    }

    /// Waits in the queue, or for a free lock if all nodes of the CPU are in use. Returns the CPU's
    /// node, if it used one: the lock's `next` has to replace it.
    pub(crate) fn wait<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        prepare: impl FnOnce(&Nodes, NodeId),
    ) -> Option<NodeId> {
        let nodes = &cpu.waiters.nodes;
        let Some(me) = nodes.alloc(cpu.id) else {
            acquire::wait_without_node(self, cpu, || self.take_free());
            return None;
        };
        prepare(nodes, me);
        if self.join(cpu, me) {
            Spins::new(&cpu.watch).until(cpu, None, || nodes.gate(me) != Gate::CLOSED);
            self.record_handover();
        }
        Some(me)
    }

    /// Replaces the holder's node `me` by the lock's own `next`.
    pub(crate) fn replace_node<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) {
        if let Some(next) = self.next_or_last(cpu, me, ALONE, 0) {
            self.set_next(next);
        }
    }

    /// The node behind `me`, the holder's. `None` if `me` was the last: the lock's tail is then
    /// `tail`, and its `next` is `next`.
    pub(crate) fn next_or_last<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        me: NodeId,
        tail: u16,
        next: u16,
    ) -> Option<NodeId> {
        if let Some(behind) = cpu.waiters.nodes.linked_behind(me) {
            return Some(behind);
        }
        // Before the tail changes: from then on the next CPU links itself here.
        self.next.store(next, Ordering::Relaxed);
        let last = me.name();
        // Release, for the store above. The lock itself orders the accesses under it.
        if self.tail.compare_exchange(last, tail, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        Some(cpu.waiters.nodes.next(me, || cpu.pv.spin_hint()))
    }

    /// Like [`HandedQueue::next_or_last`], for a node that leaves the queue; frees the lock if it
    /// was last.
    pub(crate) fn successor_or_free<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        node: NodeId,
    ) -> Option<NodeId> {
        self.next_or_last(cpu, node, FREE, 0)
    }

    /// Sets the node that gets the lock at the next release. Called by the holder.
    pub(crate) fn set_next(&self, next: NodeId) {
        self.next.store(next.name(), Ordering::Relaxed);
    }

    /// The node to hand the lock to. `None` if no CPU waited; the lock is then free.
    pub(crate) fn next_or_free(&self, mut pause: impl FnMut()) -> Option<NodeId> {
        if let Some(next) = self.next() {
            return Some(next);
        }
        if self.tail.compare_exchange(ALONE, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        // A CPU has swapped the tail, and links itself in its next step.
        loop {
            pause();
            if let Some(next) = self.next() {
                return Some(next);
            }
        }
    }

    /// The lock's `next`. Acquires the waiter's node.
    fn next(&self) -> Option<NodeId> {
        NodeId::parse(self.next.load(Ordering::Acquire))
    }

    /// See [`RawLock::is_contended`](crate::RawLock::is_contended).
    pub(crate) fn is_contended(&self) -> bool {
        self.tail.load(Ordering::Relaxed) > ALONE
    }

    /// See [`RawLock::wait_until_released`](crate::RawLock::wait_until_released).
    pub(crate) fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        let is_free = || self.tail.load(Ordering::Acquire) == FREE;
        self.handovers.wait_until_released(is_free, || cpu.pv.spin_hint());
    }

    /// See [`RawLock::releases_before`](crate::RawLock::releases_before).
    pub(crate) fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        waiters.nodes.releases_before_gate(position, self.next.load(Ordering::Relaxed))
    }
}
