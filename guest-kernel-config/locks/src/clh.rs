//! The CLH lock (Craig, Landin and Hagersten).

use crate::acquire::{self, Ticketless};
use crate::clh_nodes::ClhNodes;
use crate::halt::Waits;
use crate::handovers::Handovers;
use crate::node::NodeId;
use crate::position;
use crate::sync::{AtomicU16, Ordering};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Position, Pv, WaitTable, Watch, settle};

const FREE: u16 = 0;
/// The lock is held by a CPU without a node: its successor waits at the lock itself.
const ALONE: u16 = 1;
/// More than 1, like the gate of any waiter that has been served ([`Position`]).
const HANDED_OVER: u16 = 2;

/// A queue without links: each CPU waits at the node of its predecessor. After T. S. Craig,
/// "Building FIFO and priority-queuing spin locks from atomic swap" (1993), and P. Magnusson,
/// A. Landin and E. Hagersten, "Queue Locks on Cache Coherent Multiprocessors" (IPPS 1994).
///
/// - An arriving CPU swaps its node's name into the tail, and waits until the node that it finds
///   there is released.
/// - A holder releases its own node. It need not know its successor, so it never waits for a CPU
///   that is about to link itself, as the holder of an [`McsLock`](crate::McsLock) may have to.
///
/// There are two differences from the papers. A CPU keeps its nodes: its successor gives a node
/// back after the release. And a CPU that finds the lock free needs no node. A CPU that waited
/// keeps its node while it holds the lock, so a CPU that holds four locks after waiting for each
/// waits for the next lock outside the queue, in no order.
///
/// First in, first out: a preempted waiter blocks all CPUs behind it. Supports as many CPUs as
/// [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct ClhLock {
    /// [`FREE`], [`ALONE`], or the name of the last node in the queue.
    tail: AtomicU16,
    /// The holder's node; [`ALONE`] if it has none, or the lock is free. Written by the holder. In
    /// the upper half of the first 32 bits, where observers read it ([`Position`]).
    node: AtomicU16,
    /// [`HANDED_OVER`]: a holder without a node has released the lock to its successor.
    is_handed: AtomicU16,
    handovers: Handovers,
}

impl ClhLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self {
            tail: AtomicU16::new(FREE),
            node: AtomicU16::new(ALONE),
            is_handed: AtomicU16::new(0),
            handovers: Handovers::new(),
        }
    }

    /// Describes a waiter behind `before`.
    fn position(&self, nodes: &ClhNodes, before: u16) -> Position {
        let gate = NodeId::parse(before).map_or(&self.is_handed, |before| nodes.gate(before));
        Position::new(before, before, gate)
    }

    /// Whether the CPU named `before` has released the lock. Acquires its writes.
    fn is_released(&self, nodes: &ClhNodes, before: u16) -> bool {
        match NodeId::parse(before) {
            Some(before) => nodes.is_released(before),
            None => self.is_handed.load(Ordering::Acquire) == HANDED_OVER,
        }
    }

    /// Gives back the node of `before`, the holder's predecessor.
    fn give_back(&self, nodes: &ClhNodes, before: u16) {
        match NodeId::parse(before) {
            Some(before) => nodes.give_back(before),
            // Before the release, after which another CPU may take the lock without a node.
            None => self.is_handed.store(0, Ordering::Relaxed),
        }
    }
}

impl Ticketless for ClhLock {
    const FIFO: bool = true;
    const BYPASS: Bypass = Bypass::FromQueue;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        acquire::take_zero(&self.tail, ALONE)
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.clh_nodes;
        let Some(me) = nodes.alloc(cpu.id) else {
            return acquire::wait_without_node(self, cpu, || self.take(cpu));
        };
        // Release, for the node; acquire, for the writes of earlier holders if the lock is free
        // now.
        let before = self.tail.swap(me.name(), Ordering::AcqRel);
        if before != FREE {
            cpu.watch.queued(LockKey::new(self).address(), Some(self.position(nodes, before)));
            Spins::new(&cpu.watch).until(cpu, None, || self.is_released(nodes, before));
        }
        self.node.store(me.name(), Ordering::Relaxed);
        if before != FREE {
            self.give_back(nodes, before);
            self.handovers.record();
        }
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        let node = NodeId::parse(self.node.load(Ordering::Relaxed));
        let name = node.map_or(ALONE, NodeId::name);
        // Any other value is a waiter's, and stays until this CPU has released its node.
        let is_last = self.tail.load(Ordering::Relaxed) == name;
        // A waiter stores its own node.
        if node.is_some() && is_last {
            self.node.store(ALONE, Ordering::Relaxed);
        }
        // From here on the lock may be freed memory, unless a CPU waits at it.
        let free = || self.tail.compare_exchange(name, FREE, Ordering::Release, Ordering::Relaxed);
        let is_free = is_last && free().is_ok();
        match node {
            Some(node) if is_free => cpu.waiters.clh_nodes.give_back(node),
            Some(node) => cpu.waiters.clh_nodes.release(node),
            None if is_free => {}
            None => self.is_handed.store(HANDED_OVER, Ordering::Release),
        }
        false
    }

    fn is_contended(&self) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        tail > ALONE && tail != self.node.load(Ordering::Relaxed)
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        let is_free = || self.tail.load(Ordering::Acquire) == FREE;
        self.handovers.wait_until_released(is_free, || cpu.pv.spin_hint());
    }

    fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        let is_released = self.is_released(&waiters.clh_nodes, position.node);
        position::releases(self.node.load(Ordering::Relaxed) == position.name, is_released)
    }
}
