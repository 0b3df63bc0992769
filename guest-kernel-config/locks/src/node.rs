//! Queues of CPUs, each of which waits at its own node.
//!
//! The queue is that of Mellor-Crummey and Scott ("Algorithms for Scalable Synchronization on
//! Shared-Memory Multiprocessors", 1991), with numbers for pointers: two bytes name a node.

use crate::awaited::{self, Awaited};
use crate::sync::{AtomicU16, AtomicU64, MAX_CPUS, Ordering};

/// Nodes per CPU: one for task context, and more for nested interrupt handlers.
pub(crate) const NESTINGS: usize = 4;

/// Number of CPUs that node ids can tell apart: 14 bits, of which zero means none.
pub(crate) const NAMED: u32 = (1 << 14) - 1;

const _: () = assert!(MAX_CPUS as u32 <= NAMED);

/// The node's CPU halts until it is the head, or is about to.
const HALTED: u16 = 1;
/// The node is at the head of its queue.
const HEAD: u16 = 2;
/// One place behind the head, for locks that count places. From this bit on.
const PLACE: u16 = 4;
/// Places further back count as this one.
const LAST_PLACE: u16 = 8;

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

    /// Its CPU.
    pub(crate) fn cpu(self) -> usize {
        usize::from(self.0 >> 2) - 1
    }

    /// The node's name in a lock's word: neither zero nor one.
    pub(crate) fn name(self) -> u16 {
        self.0
    }

    /// The node of that name; `None` for words that name none.
    pub(crate) fn parse(word: u16) -> Option<Self> {
        (word >= 1 << 2).then_some(Self(word))
    }
}

/// What the CPU of a node waits for, if its lock is handed over at the node: with a word of the
/// lock's. Such a node has no other [`Node::turn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gate(pub(crate) u16);

impl Gate {
    /// The lock has not been handed over yet.
    pub(crate) const CLOSED: Self = Self(0);
    /// It has, and nothing is to be said with it.
    pub(crate) const OPEN: Self = Self(HEAD);
}

#[derive(Debug)]
struct Node {
    /// The node behind it, or zero.
    next: AtomicU16,
    /// The node before it, for locks whose waiters may leave the queue before they are its head.
    previous: AtomicU16,
    /// [`HALTED`], [`HEAD`] and the [`PLACE`], or a [`Gate`].
    turn: AtomicU16,
    /// One more than the preempted CPU that the node before has named; zero: none. For locks whose
    /// waiters yield.
    named: AtomicU16,
    /// How many were moved before a waiter that came earlier, up to this one, for locks that move waiters.
    moved: AtomicU16,
}

/// A CPU's nodes, and how many of them are in use. Written while waiting: in two cache lines of
/// their own.
#[derive(Debug)]
#[repr(align(128))]
struct Own {
    /// Written by the CPU alone; a handler restores it.
    used: AtomicU16,
    /// The socket that the CPU last waited on, for locks that go by that.
    socket: AtomicU16,
    /// When the CPU last looked at a node, for locks that tell by that whether it runs.
    stamp: AtomicU64,
    nodes: [Node; NESTINGS],
}

impl Node {
    const fn new() -> Self {
        let [next, previous, turn, named, moved] = [const { AtomicU16::new(0) }; 5];
        Self { next, previous, turn, named, moved }
    }
}

impl Own {
    const fn new() -> Self {
        let ([used, socket], stamp) = ([const { AtomicU16::new(0) }; 2], AtomicU64::new(0));
        Self { used, socket, stamp, nodes: [const { Node::new() }; NESTINGS] }
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
        let me = NodeId::new(cpu, level);
        self.renew(me);
        Some(me)
    }

    /// A node that is in no queue any more is as [`Nodes::begin`] returned it.
    pub(crate) fn renew(&self, me: NodeId) {
        let node = self.node(me);
        node.next.store(0, Ordering::Relaxed);
        node.turn.store(0, Ordering::Relaxed);
    }

    /// The CPU of `me` runs at this time. Relaxed: one that seems not to run is only passed over.
    pub(crate) fn stamp(&self, me: NodeId, now: u64) {
        self.0[me.cpu()].stamp.store(now, Ordering::Relaxed);
    }

    /// When the CPU of `id` last said that it runs.
    pub(crate) fn stamped(&self, id: NodeId) -> u64 {
        self.0[id.cpu()].stamp.load(Ordering::Relaxed)
    }

    /// The CPU of `me` is about to wait on this socket. Relaxed: it links its node afterwards.
    pub(crate) fn set_socket(&self, me: NodeId, socket: u16) {
        self.0[me.cpu()].socket.store(socket, Ordering::Relaxed);
    }

    /// The socket that the CPU of `id` waits on.
    pub(crate) fn socket(&self, id: NodeId) -> u16 {
        self.0[id.cpu()].socket.load(Ordering::Relaxed)
    }

    /// So many were moved, with `id` or before it, before a waiter that came earlier. By its own CPU before it
    /// joins, then by the head.
    pub(crate) fn set_moved(&self, id: NodeId, moved: u16) {
        self.node(id).moved.store(moved, Ordering::Relaxed);
    }

    /// How many were moved with `id` or before it.
    pub(crate) fn moved(&self, id: NodeId) -> u16 {
        self.node(id).moved.load(Ordering::Relaxed)
    }

    /// Frees the node that [`Nodes::begin`] returned last; it is in no queue any more.
    pub(crate) fn end(&self, node: NodeId) {
        self.0[node.cpu()].used.store(node.level(), Ordering::Relaxed);
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.0[id.cpu()].nodes[usize::from(id.level())]
    }

    /// `me` is behind `before`. Release, for `me`'s node.
    pub(crate) fn link(&self, before: NodeId, me: NodeId) {
        self.node(before).next.store(me.0, Ordering::Release);
    }

    /// The node that is linked behind it, or about to be: `look_again` is called meanwhile.
    pub(crate) fn next(&self, id: NodeId, mut look_again: impl FnMut()) -> NodeId {
        loop {
            if let Some(next) = self.linked_behind(id) {
                return next;
            }
            look_again();
        }
    }

    /// The node that is linked behind it, if one is yet. Acquire, for that node.
    pub(crate) fn linked_behind(&self, id: NodeId) -> Option<NodeId> {
        NodeId::parse(self.node(id).next.load(Ordering::Acquire))
    }

    /// No node is behind it any more. Relaxed: another is linked there later, if one is.
    pub(crate) fn unlink_behind(&self, id: NodeId) {
        self.node(id).next.store(0, Ordering::Relaxed);
    }

    /// `before` is before `me`. Relaxed: `me`'s CPU looks for it under the lock, which orders it.
    pub(crate) fn follow(&self, before: NodeId, me: NodeId) {
        self.node(me).previous.store(before.0, Ordering::Relaxed);
    }

    /// The node that `me` was last said to follow.
    pub(crate) fn previous(&self, me: NodeId) -> Option<NodeId> {
        NodeId::parse(self.node(me).previous.load(Ordering::Relaxed))
    }

    /// Number of places that a CPU behind `before` is behind the head, as far as is known.
    pub(crate) fn place_behind(&self, before: NodeId) -> u16 {
        let turn = self.node(before).turn.load(Ordering::Relaxed);
        if turn & HEAD != 0 { 1 } else { (turn / PLACE + 1).min(LAST_PLACE) }
    }

    /// `me`, which is not linked yet, is so many places behind the head.
    pub(crate) fn set_place(&self, me: NodeId, place: u16) {
        self.node(me).turn.store(place * PLACE, Ordering::Relaxed);
    }

    /// `me`, which no other CPU knows yet, is the head.
    pub(crate) fn begin_as_head(&self, me: NodeId) {
        self.node(me).turn.store(HEAD, Ordering::Relaxed);
    }

    /// Number of places that `me` is behind the head, as far as is known. Its CPU alone calls it:
    /// those behind read what it finds. A hint: the node before may have left.
    pub(crate) fn place(&self, me: NodeId) -> u16 {
        let place = self.previous(me).map_or(1, |before| self.place_behind(before));
        let turn = &self.node(me).turn;
        let old = turn.load(Ordering::Relaxed) / PLACE;
        // Added, because another CPU may make it the head meanwhile.
        turn.fetch_add(place.wrapping_sub(old).wrapping_mul(PLACE), Ordering::Relaxed);
        place
    }

    /// `me`, the last of its queue, leaves from behind `before`, unless another CPU has joined
    /// behind `before` already.
    pub(crate) fn unlink_last(&self, before: NodeId, me: NodeId) {
        let next = &self.node(before).next;
        let _ = next.compare_exchange(me.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Has its CPU been handed the lock? Acquire, for what was done under it.
    #[inline]
    pub(crate) fn gate(&self, id: NodeId) -> Gate {
        Gate(self.node(id).turn.load(Ordering::Acquire))
    }

    /// Hands its CPU the lock.
    #[inline]
    pub(crate) fn open(&self, id: NodeId, gate: Gate) {
        self.node(id).turn.store(gate.0, Ordering::Release);
    }

    /// No CPU is named to `me` yet, which is in no queue. For locks that name CPUs.
    pub(crate) fn unname(&self, me: NodeId) {
        self.node(me).named.store(0, Ordering::Relaxed);
    }

    /// Names a CPU, or none, to the node that is linked behind `me`, if one is. Relaxed: a hint; the
    /// node may have been used again since, for another lock.
    pub(crate) fn name_behind(&self, me: NodeId, cpu: Option<usize>) {
        let Some(next) = NodeId::parse(self.node(me).next.load(Ordering::Relaxed)) else { return };
        let (named, name) = (&self.node(next).named, cpu.map_or(0, |cpu| cpu as u16 + 1));
        // Looks first: as a rule there is nothing to say, and the waiter's line stays its own.
        if named.load(Ordering::Relaxed) != name {
            named.store(name, Ordering::Relaxed);
        }
    }

    /// The CPU that was named to `me`.
    pub(crate) fn named(&self, me: NodeId) -> Option<usize> {
        usize::from(self.node(me).named.load(Ordering::Relaxed)).checked_sub(1)
    }

    /// What the waiter at a node goes by whose queue's head looks at the lock.
    pub(crate) fn awaited(&self, me: NodeId) -> Awaited {
        Awaited::new(0, me.0, &self.node(me).turn)
    }

    /// What the waiter at a node goes by to whom the lock is handed.
    pub(crate) fn awaited_gate(&self, me: NodeId) -> Awaited {
        Awaited::new(me.0, me.0, &self.node(me).turn)
    }

    /// As [`RawLock::releases_before`](crate::RawLock::releases_before), for the queue of a lock that
    /// `is_held`.
    pub(crate) fn releases_before(&self, awaited: Awaited, is_held: bool) -> Option<u16> {
        let is_head = self.is_head(NodeId::parse(awaited.node)?);
        awaited::releases(is_head, is_head && !is_held)
    }

    /// As [`RawLock::releases_before`](crate::RawLock::releases_before), for a lock that calls the one it is handed to
    /// `next`.
    pub(crate) fn releases_before_gate(&self, awaited: Awaited, next: u16) -> Option<u16> {
        let is_open = self.gate(NodeId::parse(awaited.node)?).0 > 1;
        awaited::releases(next == awaited.name, is_open)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Their order is the compiler's.
    #[test]
    fn what_a_waiter_writes_is_in_one_cache_line() {
        let (nodes, used) = (NESTINGS * size_of::<Node>(), 2 * size_of::<AtomicU16>());
        assert!(nodes + used.next_multiple_of(8) + size_of::<AtomicU64>() <= 64);
    }

    #[test]
    fn names_tell_cpus_and_levels_apart() {
        for cpu in [0, 1, MAX_CPUS - 1] {
            for level in 0..4 {
                let id = NodeId::new(cpu, level);
                assert_eq!((id.cpu(), id.level()), (cpu, level));
                assert_eq!(NodeId::parse(id.0), Some(id));
            }
        }
        assert_eq!([0, 1].map(NodeId::parse), [None, None]);
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
}
