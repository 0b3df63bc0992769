//! Queues of CPUs, each of which waits at its own node.
//!
//! The queue is that of Mellor-Crummey and Scott ("Algorithms for Scalable Synchronization on
//! Shared-Memory Multiprocessors", 1991), with numbers for pointers: two bytes name a node.

use crate::sync::{AtomicU16, MAX_CPUS, Ordering};

/// Nodes per CPU: one for task context, and more for nested interrupt handlers.
pub(crate) const NESTINGS: usize = 4;

/// Number of CPUs that node ids can tell apart: 14 bits, of which zero means none.
pub(crate) const NAMED: u32 = (1 << 14) - 1;

const _: () = assert!(MAX_CPUS as u32 <= NAMED);

/// The node's CPU halts until it is the head, or is about to.
const HALTED: u16 = 1;
/// The node is at the head of its queue.
const HEAD: u16 = 2;

/// One more than the CPU, and the index of its node. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(u16);

impl NodeId {
    /// `cpu`'s node at `level`, modulo [`NESTINGS`].
    pub(crate) fn new(cpu: usize, level: u16) -> Self {
        Self(((cpu as u16 + 1) << 2) | (level % NESTINGS as u16))
    }

    /// The index among its CPU's nodes.
    pub(crate) fn level(self) -> u16 {
        self.0 % NESTINGS as u16
    }

    fn cpu(self) -> usize {
        usize::from(self.0 >> 2) - 1
    }

    fn parse(word: u16) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }
}

#[derive(Debug)]
struct Node {
    /// The node behind it, or zero.
    next: AtomicU16,
    /// [`HALTED`] and [`HEAD`].
    turn: AtomicU16,
}

/// A CPU's nodes, and how many of them are in use. Written while waiting: in two cache lines of
/// their own.
#[derive(Debug)]
#[repr(align(128))]
struct Own {
    /// Written by the CPU alone; a handler restores it.
    used: AtomicU16,
    nodes: [Node; NESTINGS],
}

impl Node {
    const fn new() -> Self {
        Self { next: AtomicU16::new(0), turn: AtomicU16::new(0) }
    }
}

impl Own {
    const fn new() -> Self {
        Self { used: AtomicU16::new(0), nodes: [const { Node::new() }; NESTINGS] }
    }
}

/// The nodes of all CPUs, for all queued locks.
#[derive(Debug)]
pub(crate) struct Nodes([Own; MAX_CPUS]);

impl Nodes {
    /// All nodes unused.
    pub(crate) const fn new() -> Self {
        Self([const { Own::new() }; MAX_CPUS])
    }

    /// A node for `cpu`, unless all are in use.
    pub(crate) fn begin(&self, cpu: usize) -> Option<NodeId> {
        let own = &self.0[cpu];
        let level = own.used.load(Ordering::Relaxed);
        if usize::from(level) >= NESTINGS {
            return None;
        }
        // From here on a handler takes the next one. Before, it took this one and is done with it.
        own.used.store(level + 1, Ordering::Relaxed);
        let node = &own.nodes[usize::from(level)];
        node.next.store(0, Ordering::Relaxed);
        node.turn.store(0, Ordering::Relaxed);
        Some(NodeId::new(cpu, level))
    }

    /// Frees the node that [`Nodes::begin`] returned last; it is in no queue any more.
    pub(crate) fn end(&self, node: NodeId) {
        self.0[node.cpu()].used.store(node.level(), Ordering::Relaxed);
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.0[id.cpu()].nodes[usize::from(id.level())]
    }

    /// Is it at the head of its queue?
    #[inline]
    pub(crate) fn is_head(&self, id: NodeId) -> bool {
        self.node(id).turn.load(Ordering::Acquire) & HEAD != 0
    }

    /// Makes it the head; `true`: its CPU halts.
    ///
    /// Acquire, for the record of a CPU that halts.
    pub(crate) fn make_head(&self, id: NodeId) -> bool {
        self.node(id).turn.fetch_or(HEAD, Ordering::AcqRel) & HALTED != 0
    }

    /// Its CPU is about to halt; `false`: it must not, because it is the head.
    ///
    /// Releases the CPU's record to the CPU that makes it the head.
    pub(crate) fn halt(&self, id: NodeId) -> bool {
        self.node(id).turn.fetch_or(HALTED, Ordering::AcqRel) & HEAD == 0
    }

    /// Its CPU is back from its halt. Relaxed: a CPU that makes it the head before may see a halt
    /// that is over, which only costs a kick.
    pub(crate) fn resume(&self, id: NodeId) {
        self.node(id).turn.fetch_and(!HALTED, Ordering::Relaxed);
    }
}

/// The waiters for a lock: the last of them; each node links to the one behind it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tail: AtomicU16,
}

impl Queue {
    /// An empty queue.
    pub(crate) const fn new() -> Self {
        Self { tail: AtomicU16::new(0) }
    }

    /// Is it empty? Relaxed: it is a hint, and publishes nothing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == 0
    }

    /// `me` joins, and is the head at once if the queue was empty.
    ///
    /// Release, for the node that the next CPU writes to; acquire, for the previous node.
    pub(crate) fn join(&self, nodes: &Nodes, me: NodeId) {
        match NodeId::parse(self.tail.swap(me.0, Ordering::AcqRel)) {
            Some(before) => nodes.node(before).next.store(me.0, Ordering::Release),
            None => nodes.node(me).turn.store(HEAD, Ordering::Relaxed),
        }
    }

    /// The head leaves; returns the next head, if there is one. `look_again` is called while a CPU
    /// has joined and not yet linked its node.
    ///
    /// Relaxed: the lock itself orders what was done under it.
    pub(crate) fn leave(
        &self,
        nodes: &Nodes,
        me: NodeId,
        mut look_again: impl FnMut(),
    ) -> Option<NodeId> {
        let left = self.tail.compare_exchange(me.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        if left.is_ok() {
            return None;
        }
        loop {
            let next = NodeId::parse(nodes.node(me).next.load(Ordering::Acquire));
            if next.is_some() {
                return next;
            }
            look_again();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_cpus_and_levels_apart() {
        for cpu in [0, 1, MAX_CPUS - 1] {
            for level in 0..4 {
                let id = NodeId::new(cpu, level);
                assert_eq!((id.cpu(), id.level()), (cpu, level));
                assert_eq!(NodeId::parse(id.0), Some(id));
            }
        }
        assert_eq!(NodeId::parse(0), None);
    }

    #[test]
    fn a_cpu_has_four_nodes() {
        let nodes = Nodes::new();
        let taken: [_; NESTINGS] = core::array::from_fn(|_| nodes.begin(7));
        let levels = taken.map(|id| id.map(NodeId::level));
        assert_eq!(levels, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(nodes.begin(7), None);
        nodes.end(NodeId::new(7, 3));
        assert_eq!(nodes.begin(7), Some(NodeId::new(7, 3)));
    }

    #[test]
    fn the_head_is_passed_on_in_the_order_of_joining() {
        let (nodes, queue) = (Nodes::new(), Queue::new());
        let ids = [3, 1, 127].map(|cpu| nodes.begin(cpu).expect("none in use"));
        for id in ids {
            queue.join(&nodes, id);
        }
        for pair in ids.windows(2) {
            assert!(nodes.is_head(pair[0]) && !nodes.is_head(pair[1]));
            let next = queue.leave(&nodes, pair[0], || panic!("they have left their names"));
            assert_eq!(next, Some(pair[1]));
            assert!(!nodes.make_head(pair[1]), "it does not halt");
        }
        assert_eq!(queue.leave(&nodes, ids[2], || panic!("it is the last")), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_head_does_not_halt() {
        let nodes = Nodes::new();
        let id = nodes.begin(0).expect("none in use");
        assert!(nodes.halt(id));
        nodes.resume(id);
        assert!(!nodes.make_head(id));
        assert!(!nodes.halt(id));
        let id = nodes.begin(1).expect("none in use");
        assert!(nodes.halt(id));
        assert!(nodes.make_head(id), "it is to be kicked");
    }

    #[test]
    fn whoever_has_joined_is_waited_for() {
        let (nodes, queue) = (Nodes::new(), Queue::new());
        let ids = [0, 1].map(|cpu| nodes.begin(cpu).expect("none in use"));
        queue.join(&nodes, ids[0]);
        // The second has joined and not yet linked its node.
        queue.tail.store(ids[1].0, Ordering::Relaxed);
        let mut looks = 0;
        let next = queue.leave(&nodes, ids[0], || {
            looks += 1;
            nodes.node(ids[0]).next.store(ids[1].0, Ordering::Release);
        });
        assert_eq!((next, looks), (Some(ids[1]), 1));
    }
}
