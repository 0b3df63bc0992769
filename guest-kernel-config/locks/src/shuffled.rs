//! A queue that its head reorders.

use crate::acquire::{self, Ticketless};
use crate::halt::Waits;
use crate::held::Held;
use crate::node::{NodeId, Nodes};
use crate::queue::Queue;
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// Limit on waiters in a row that are moved ahead of an earlier waiter (paper: `MAX_SHUFFLES`).
const BATCH: u16 = 1024;

/// The spinning form of the shuffle lock: S. Kashyap, I. Calciu, X. Cheng, C. Min and T. Kim,
/// "Scalable and Practical Locking with Shuffling" (SOSP 2019).
///
/// A [`QueuedLock`](crate::QueuedLock) whose waiters reorder the queue while they wait:
///
/// - One waiter at a time is the shuffler: at first the head, if it was not moved or found in place by another shuffler.
/// - The shuffler moves the waiters behind it on its socket ([`Pv::socket`]) ahead of those on other sockets, in order.
///   It stops at the end of the queue, when it becomes the head, or, as the head, when the lock is free. The last waiter
///   in its group is the next shuffler.
/// - At most 1024 waiters in a row are moved ahead of an earlier waiter.
///
/// Unlike in a [`CnaLock`](crate::CnaLock), the order costs the holder nothing. A waiter may be passed over
/// 1024 times for each CPU ahead of it, and 1024 times at the front: `1025 * (n - 1)`. A preempted waiter
/// blocks all CPUs behind it. Supports as many CPUs as [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(4))]
pub struct ShuffledLock {
    held: Held,
    queue: Queue,
}

impl ShuffledLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { held: Held::new(), queue: Queue::new() }
    }
}

/// Moves waiters behind `me`, the shuffler, until `is_over`. Moves only linked waiters, and never the last: the next CPU
/// to arrive links itself there. Gives the hint to be the shuffler to the last waiter of the group.
fn shuffle(nodes: &Nodes, me: NodeId, is_over: impl Fn() -> bool) {
    nodes.clear_hint(me);
    let socket = nodes.socket(me);
    let mut moved = nodes.moved(me).max(1);
    nodes.set_moved(me, moved);
    // The last node of the group, and the node before the next to check.
    let (mut group, mut before) = (me, me);
    while moved < BATCH
        && let Some(node) = nodes.linked_behind(before)
        && let Some(behind) = nodes.linked_behind(node)
    {
        if nodes.socket(node) != socket {
            before = node;
        } else {
            if before == group {
                before = node;
            } else if let Some(passed) = nodes.linked_behind(group) {
                nodes.link(before, behind);
                nodes.link(node, passed);
                nodes.link(group, node);
                moved += 1;
            }
            nodes.set_moved(node, moved);
            group = node;
        }
        if is_over() {
            break;
        }
    }
    if moved < BATCH {
        nodes.give_hint(group);
    }
}

impl Ticketless for ShuffledLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::TimesFromQueue(BATCH as u32 + 1);

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.queue.is_empty() && self.held.take()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let Some(me) = nodes.alloc(cpu.id) else {
            return acquire::wait_without_node(self, cpu, || self.held.take());
        };
        let mut spins = Spins::new(&cpu.watch);
        nodes.set_socket(me, cpu.pv.socket());
        nodes.set_moved(me, 0);
        nodes.clear_hint(me);
        self.queue.join(nodes, me);
        cpu.watch.queued(LockKey::new(self).address(), Some(nodes.position(me)));
        let is_head = || nodes.is_head(me);
        spins.until(cpu, None, || {
            if !is_head() && nodes.has_hint(me) {
                shuffle(nodes, me, is_head);
            }
            is_head()
        });
        spins.until(cpu, None, || {
            if self.held.is_held() && (nodes.moved(me) == 0 || nodes.has_hint(me)) {
                shuffle(nodes, me, || !self.held.is_held());
            }
            self.held.take()
        });
        self.queue.pass_head(nodes, me, || cpu.pv.spin_hint());
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.held.release_plain();
        false
    }

    crate::queue::waiters_of_queue!(held);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    /// Creates a queue of these CPUs on these sockets.
    fn queue(nodes: &Nodes, waiters: &[(usize, u16)]) -> Queue {
        let queue = Queue::new();
        for (cpu, socket) in waiters {
            let me = nodes.alloc(*cpu).expect("none in use");
            nodes.set_socket(me, *socket);
            nodes.set_moved(me, 0);
            queue.join(nodes, me);
        }
        queue
    }

    /// The CPUs of a queue, from its head.
    fn order(nodes: &Nodes, head: usize) -> Vec<usize> {
        let behind = |node: &NodeId| nodes.linked_behind(*node);
        core::iter::successors(Some(NodeId::new(head, 0)), behind).map(NodeId::cpu).collect()
    }

    #[test]
    fn waiters_on_the_shufflers_socket_move_to_the_front() {
        let nodes = Nodes::new();
        queue(&nodes, &[(1, 7), (2, 7), (3, 8), (4, 9), (5, 7), (6, 8), (7, 7), (8, 7)]);
        shuffle(&nodes, NodeId::new(1, 0), || false);
        // 8 is the last, and the next to arrive links itself behind it.
        assert_eq!(order(&nodes, 1), [1, 2, 5, 7, 3, 4, 6, 8]);
        let moved = [2, 5, 7, 3].map(|cpu| nodes.moved(NodeId::new(cpu, 0)));
        assert_eq!(moved, [1, 2, 3, 0]);
        let shufflers = (1..9).filter(|cpu| nodes.has_hint(NodeId::new(*cpu, 0)));
        assert_eq!(shufflers.collect::<Vec<_>>(), [7], "the last of the group");
    }

    #[test]
    fn a_shuffler_stops_once_it_is_over() {
        let nodes = Nodes::new();
        queue(&nodes, &[(1, 7), (2, 8), (3, 7), (4, 8), (5, 7), (6, 8)]);
        let head = NodeId::new(1, 0);
        shuffle(&nodes, head, || nodes.linked_behind(head) == Some(NodeId::new(3, 0)));
        assert_eq!(order(&nodes, 1), [1, 3, 2, 4, 5, 6]);
        shuffle(&nodes, NodeId::new(3, 0), || false);
        assert_eq!(order(&nodes, 1), [1, 3, 5, 2, 4, 6]);
    }

    #[test]
    fn at_most_a_batch_is_moved_ahead_of_a_waiter() {
        let nodes = Nodes::new();
        queue(&nodes, &[(1, 7), (2, 7), (3, 8), (4, 7), (5, 7), (6, 7)]);
        nodes.set_moved(NodeId::new(1, 0), BATCH - 1);
        shuffle(&nodes, NodeId::new(1, 0), || false);
        assert_eq!(order(&nodes, 1), [1, 2, 4, 3, 5, 6]);
        assert_eq!(nodes.moved(NodeId::new(4, 0)), BATCH);
        assert!(!nodes.has_hint(NodeId::new(4, 0)), "the group has ended");
    }
}
