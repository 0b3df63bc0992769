//! Queues of CPUs that each wait at their own node.
//!
//! They are queues after Mellor-Crummey and Scott ("Algorithms for Scalable Synchronization on Shared-Memory
//! Multiprocessors", 1991), with numbers for pointers: two bytes name a node.

use crate::position::{self, Position};
use crate::sync::{AtomicU16, AtomicU64, MAX_CPUS, Ordering};

/// Nodes per CPU: one for task context, and more for nested interrupt handlers.
pub(crate) const NESTINGS: usize = 4;

/// Number of CPUs that node ids can distinguish: 14 bits, where zero means none.
pub(crate) const MAX_NODE_CPUS: u32 = (1 << 14) - 1;

const _: () = assert!(MAX_CPUS as u32 <= MAX_NODE_CPUS);

/// The node's CPU halts until it is the head, or is about to halt.
const HALTED: u16 = 1;
/// The node is at the head of its queue.
const HEAD: u16 = 2;
/// The lowest bit of the node's distance from the head, for locks that count places.
const PLACE: u16 = 4;
/// Larger distances are stored as this value.
const LAST_PLACE: u16 = 8;

/// The value of [`Node::hint`] while the node's CPU has left a queue that still contains the node.
const ABANDONED: u16 = 2;

/// The CPU plus one, and the index of its node. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(u16);

impl NodeId {
    /// The node of `cpu` at `level`, modulo [`NESTINGS`].
    pub(crate) fn new(cpu: usize, level: u16) -> Self {
        Self(((cpu as u16 + 1) << 2) | (level % NESTINGS as u16))
    }

    /// The index among its CPU's nodes.
    pub(crate) fn level(self) -> u16 {
        self.0 % NESTINGS as u16
    }

    pub(crate) fn cpu(self) -> usize {
        usize::from(self.0 >> 2) - 1
    }

    /// The node's name in a lock's word: neither zero nor one.
    pub(crate) fn name(self) -> u16 {
        self.0
    }

    /// The node with this name; `None` for words that are not names.
    pub(crate) fn parse(word: u16) -> Option<Self> {
        (word >= 1 << 2).then_some(Self(word))
    }
}

/// The value of [`Node::state`] in a lock that is handed over at the node: a word chosen by the lock. Such a
/// node uses no other values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gate(pub(crate) u16);

impl Gate {
    /// The lock has not been handed over yet.
    pub(crate) const CLOSED: Self = Self(0);
    /// The lock has been handed over; nothing is passed with it.
    pub(crate) const OPEN: Self = Self(HEAD);
}

#[derive(Debug)]
struct Node {
    /// The next node in the queue, or zero.
    next: AtomicU16,
    /// The previous node, for locks whose waiters may leave the queue before they are its head.
    previous: AtomicU16,
    /// [`HALTED`], [`HEAD`] and the [`PLACE`], or a [`Gate`].
    state: AtomicU16,
    /// 1: a hint from the node ahead, whose meaning depends on the lock. [`ABANDONED`].
    hint: AtomicU16,
    /// Number of waiters, including this node's, moved ahead of an earlier waiter. For locks that move
    /// waiters.
    moved: AtomicU16,
}

/// A CPU's nodes, and the number of them in use. Written while waiting, so in two cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct CpuNodes {
    /// Written by the CPU alone; a handler restores it.
    used: AtomicU16,
    /// The socket that the CPU last waited on, for locks that depend on it.
    socket: AtomicU16,
    /// Last time that the CPU showed it was running, for locks that infer preemption from it.
    stamp: AtomicU64,
    nodes: [Node; NESTINGS],
}

impl Node {
    const fn new() -> Self {
        let [next, previous, state, hint, moved] = [const { AtomicU16::new(0) }; 5];
        Self { next, previous, state, hint, moved }
    }
}

impl CpuNodes {
    const fn new() -> Self {
        let ([used, socket], stamp) = ([const { AtomicU16::new(0) }; 2], AtomicU64::new(0));
        Self { used, socket, stamp, nodes: [const { Node::new() }; NESTINGS] }
    }
}

/// The nodes of all CPUs, for all queued locks.
#[derive(Debug)]
pub(crate) struct Nodes([CpuNodes; MAX_CPUS]);

impl Nodes {
    pub(crate) const fn new() -> Self {
        Self([const { CpuNodes::new() }; MAX_CPUS])
    }

    /// Allocates a node of `cpu`, unless all are in use, or the next is abandoned in a queue.
    pub(crate) fn alloc(&self, cpu: usize) -> Option<NodeId> {
        let cpu_nodes = &self.0[cpu];
        let level = cpu_nodes.used.load(Ordering::Relaxed);
        if usize::from(level) >= NESTINGS || self.is_abandoned(NodeId::new(cpu, level)) {
            return None;
        }
        // From here on a handler takes the next node. An earlier handler took this node, and has freed it.
        cpu_nodes.used.store(level + 1, Ordering::Relaxed);
        let me = NodeId::new(cpu, level);
        self.reset(me);
        Some(me)
    }

    /// Resets a node that has left its queue, as [`Nodes::alloc`] does.
    pub(crate) fn reset(&self, me: NodeId) {
        let node = self.node(me);
        node.next.store(0, Ordering::Relaxed);
        node.state.store(0, Ordering::Relaxed);
    }

    /// Records that the CPU of `me` is running at `now`. Relaxed: a CPU that seems not to run is only passed
    /// over.
    pub(crate) fn stamp(&self, me: NodeId, now: u64) {
        self.0[me.cpu()].stamp.store(now, Ordering::Relaxed);
    }

    /// The time of the last [`Nodes::stamp`] of the CPU of `id`.
    pub(crate) fn stamped(&self, id: NodeId) -> u64 {
        self.0[id.cpu()].stamp.load(Ordering::Relaxed)
    }

    /// Sets the socket on which the CPU of `me` is about to wait. Relaxed: it links its node afterwards.
    pub(crate) fn set_socket(&self, me: NodeId, socket: u16) {
        self.0[me.cpu()].socket.store(socket, Ordering::Relaxed);
    }

    /// The socket on which the CPU of `id` waits.
    pub(crate) fn socket(&self, id: NodeId) -> u16 {
        self.0[id.cpu()].socket.load(Ordering::Relaxed)
    }

    /// Sets the number of waiters, up to `id`, that were moved ahead of an earlier waiter. Called by the
    /// node's own CPU before it joins, then by the head.
    pub(crate) fn set_moved(&self, id: NodeId, moved: u16) {
        self.node(id).moved.store(moved, Ordering::Relaxed);
    }

    /// Number of waiters, up to `id`, that were moved ahead of an earlier waiter.
    pub(crate) fn moved(&self, id: NodeId) -> u16 {
        self.node(id).moved.load(Ordering::Relaxed)
    }

    /// Frees the node that [`Nodes::alloc`] returned last; it has left its queue.
    pub(crate) fn free(&self, node: NodeId) {
        self.0[node.cpu()].used.store(node.level(), Ordering::Relaxed);
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.0[id.cpu()].nodes[usize::from(id.level())]
    }

    /// Links `me` behind `before`. Release, for `me`'s node.
    pub(crate) fn link(&self, before: NodeId, me: NodeId) {
        self.node(before).next.store(me.0, Ordering::Release);
    }

    /// The node linked behind `id`, or about to be: calls `pause` until it is linked.
    pub(crate) fn next(&self, id: NodeId, mut pause: impl FnMut()) -> NodeId {
        loop {
            if let Some(next) = self.linked_behind(id) {
                return next;
            }
            pause();
        }
    }

    /// The node linked behind `id`, if any. Acquire, for that node.
    pub(crate) fn linked_behind(&self, id: NodeId) -> Option<NodeId> {
        NodeId::parse(self.node(id).next.load(Ordering::Acquire))
    }

    /// Clears the link to the node behind `id`. Relaxed: a node that is linked there later is published by
    /// its own CPU.
    pub(crate) fn unlink_behind(&self, id: NodeId) {
        self.node(id).next.store(0, Ordering::Relaxed);
    }

    /// Sets `before` as the node ahead of `me`. Relaxed: `me`'s CPU reads it under the lock, which orders it.
    pub(crate) fn set_previous(&self, before: NodeId, me: NodeId) {
        self.node(me).previous.store(before.0, Ordering::Relaxed);
    }

    /// The node last set ahead of `me`.
    pub(crate) fn previous(&self, me: NodeId) -> Option<NodeId> {
        NodeId::parse(self.node(me).previous.load(Ordering::Relaxed))
    }

    /// Distance from the head of a CPU behind `before`, as far as is known.
    pub(crate) fn distance_behind(&self, before: NodeId) -> u16 {
        let state = self.node(before).state.load(Ordering::Relaxed);
        if state & HEAD != 0 { 1 } else { (state / PLACE + 1).min(LAST_PLACE) }
    }

    /// Sets the distance of `me`, which is not linked yet, from the head.
    pub(crate) fn set_distance(&self, me: NodeId, distance: u16) {
        self.node(me).state.store(distance * PLACE, Ordering::Relaxed);
    }

    /// Makes `me`, which no other CPU knows yet, the head.
    pub(crate) fn begin_as_head(&self, me: NodeId) {
        self.node(me).state.store(HEAD, Ordering::Relaxed);
    }

    /// Distance of `me` from the head, as far as is known. Called by its CPU only; CPUs behind read the
    /// result. A hint: the node ahead may have left.
    pub(crate) fn update_distance(&self, me: NodeId) -> u16 {
        let distance = self.previous(me).map_or(1, |before| self.distance_behind(before));
        let state = &self.node(me).state;
        let before = state.load(Ordering::Relaxed) / PLACE;
        // Added, because another CPU may make this node the head at the same time.
        state.fetch_add(distance.wrapping_sub(before).wrapping_mul(PLACE), Ordering::Relaxed);
        distance
    }

    /// Unlinks `me`, the last of its queue, from `before`, unless another CPU has joined behind `before`
    /// already.
    pub(crate) fn unlink_last(&self, before: NodeId, me: NodeId) {
        let next = &self.node(before).next;
        let _ = next.compare_exchange(me.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the lock has been handed to the node's CPU. Acquires earlier holders' writes.
    #[inline]
    pub(crate) fn gate(&self, id: NodeId) -> Gate {
        Gate(self.node(id).state.load(Ordering::Acquire))
    }

    /// Hands the lock to the node's CPU.
    #[inline]
    pub(crate) fn open(&self, id: NodeId, gate: Gate) {
        self.node(id).state.store(gate.0, Ordering::Release);
    }

    /// Gives a hint to the node `id`, which is behind the caller's. Release, for links that the caller has changed.
    pub(crate) fn give_hint(&self, id: NodeId) {
        let hint = &self.node(id).hint;
        // Reads first: usually nothing changes, and the waiter keeps its cache line.
        if hint.load(Ordering::Relaxed) == 0 {
            hint.store(1, Ordering::Release);
        }
    }

    /// Whether `me` has a hint. Acquire, for the links.
    pub(crate) fn has_hint(&self, me: NodeId) -> bool {
        self.node(me).hint.load(Ordering::Acquire) != 0
    }

    /// Clears the hint of `me`.
    pub(crate) fn clear_hint(&self, me: NodeId) {
        self.node(me).hint.store(0, Ordering::Relaxed);
    }

    /// Abandons `me` in its queue: the CPU that makes it the head passes it over. Returns `false` if `me` is the head
    /// already. Releases the node.
    pub(crate) fn abandon(&self, me: NodeId) -> bool {
        self.node(me).hint.store(ABANDONED, Ordering::Relaxed);
        let is_abandoned = self.begin_halt(me);
        if !is_abandoned {
            self.clear_hint(me);
        }
        is_abandoned
    }

    /// Whether the node is abandoned in a queue. Acquire, for the accesses of the CPU that has passed it over.
    fn is_abandoned(&self, id: NodeId) -> bool {
        self.node(id).hint.load(Ordering::Acquire) == ABANDONED
    }

    /// Returns an abandoned node, which has left the queue, to its CPU.
    pub(crate) fn end_abandonment(&self, id: NodeId) {
        self.node(id).hint.store(0, Ordering::Release);
    }

    /// Describes the waiter at `me` in a queue whose head spins at the lock.
    pub(crate) fn position(&self, me: NodeId) -> Position {
        Position::new(0, me.0, &self.node(me).state)
    }

    /// Describes the waiter at `me` of a lock that is handed over at the node.
    pub(crate) fn gate_position(&self, me: NodeId) -> Position {
        Position::new(me.0, me.0, &self.node(me).state)
    }

    /// See [`RawLock::releases_before`](crate::RawLock::releases_before), for the queue of a lock that
    /// `is_held`.
    pub(crate) fn releases_before(&self, position: Position, is_held: bool) -> Option<u16> {
        let is_head = self.is_head(NodeId::parse(position.node)?);
        position::releases(is_head, is_head && !is_held)
    }

    /// See [`RawLock::releases_before`](crate::RawLock::releases_before), for a lock that will be handed to
    /// the node named `next`.
    pub(crate) fn releases_before_gate(&self, position: Position, next: u16) -> Option<u16> {
        let is_open = self.gate(NodeId::parse(position.node)?).0 > 1;
        position::releases(next == position.name, is_open)
    }

    /// Whether the node is at the head of its queue.
    #[inline]
    pub(crate) fn is_head(&self, id: NodeId) -> bool {
        self.node(id).state.load(Ordering::Acquire) & HEAD != 0
    }

    /// Makes `id` the head; `true` if its CPU halts.
    ///
    /// Acquire, for the record of a CPU that halts.
    pub(crate) fn make_head(&self, id: NodeId) -> bool {
        self.node(id).state.fetch_or(HEAD, Ordering::AcqRel) & HALTED != 0
    }

    /// Announces that the node's CPU is about to halt; `false` if it must not, because it is the head.
    ///
    /// Releases the CPU's record to the CPU that makes it the head.
    pub(crate) fn begin_halt(&self, id: NodeId) -> bool {
        self.node(id).state.fetch_or(HALTED, Ordering::AcqRel) & HEAD == 0
    }

    /// Whether the node's CPU halts or is about to. Relaxed: a hint; the node may have been reused since, for another
    /// lock.
    pub(crate) fn is_halted(&self, id: NodeId) -> bool {
        self.node(id).state.load(Ordering::Relaxed) & HALTED != 0
    }

    /// Withdraws the announcement after a halt. Returns whether the node is the head. Relaxed: a CPU that makes the node
    /// the head before may still see the announcement, at the cost of a kick.
    pub(crate) fn end_halt(&self, id: NodeId) -> bool {
        self.node(id).state.fetch_and(!HALTED, Ordering::Relaxed) & HEAD != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler chooses the order of the fields.
    #[test]
    fn waiter_state_fits_one_cache_line() {
        let (nodes, used) = (NESTINGS * size_of::<Node>(), 2 * size_of::<AtomicU16>());
        assert!(nodes + used.next_multiple_of(8) + size_of::<AtomicU64>() <= 64);
    }

    #[test]
    fn node_names_are_unique() {
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
        let taken: [_; NESTINGS] = core::array::from_fn(|_| nodes.alloc(7));
        let levels = taken.map(|id| id.map(NodeId::level));
        assert_eq!(levels, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(nodes.alloc(7), None);
        nodes.free(NodeId::new(7, 3));
        assert_eq!(nodes.alloc(7), Some(NodeId::new(7, 3)));
    }
}
