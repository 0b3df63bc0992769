//! A queue that its head reorders.

use crate::acquire::{self, Ticketless};
use crate::halt::Waits;
use crate::held::Held;
use crate::node::{NodeId, Nodes};
use crate::queue::Queue;
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// Limit on waiters in a row that are moved ahead of an earlier waiter.
const BATCH: u16 = 64;

/// The spinning form of the shuffle lock: S. Kashyap, I. Calciu, X. Cheng, C. Min and T. Kim,
/// "Scalable and Practical Locking with Shuffling" (SOSP 2019).
///
/// A [`QueuedLock`](crate::QueuedLock) whose head reorders the queue while it waits:
///
/// - A CPU that becomes the head while the lock is held moves the waiters on its socket
///   ([`Pv::socket`]) to the front of the queue, behind itself, in order.
/// - At most 64 waiters in a row are moved ahead of an earlier waiter.
///
/// Unlike in a [`CnaLock`](crate::CnaLock), the order costs the holder nothing. In the paper the
/// last waiter that was moved continues it before it is the head. Here a waiter may be passed over
/// 64 times for each CPU ahead of it, and 64 times at the front: `65 * (n - 1)`. A preempted waiter
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

/// Moves the waiters on the socket of `head` to the front, behind those already there. Only the
/// head moves nodes, and never the last: the next CPU to arrive links itself there.
fn shuffle(nodes: &Nodes, head: NodeId) {
    let socket = nodes.socket(head);
    let mut moved = nodes.moved(head);
    // The last node at the front, and the node before the next to check.
    let (mut front, mut before) = (head, head);
    while moved < BATCH
        && let Some(node) = nodes.linked_behind(before)
        && let Some(behind) = nodes.linked_behind(node)
    {
        if nodes.socket(node) != socket {
            before = node;
            continue;
        }
        if before == front {
            before = node;
        } else if let Some(passed) = nodes.linked_behind(front) {
            nodes.link(before, behind);
            nodes.link(node, passed);
            nodes.link(front, node);
            moved += 1;
        }
        nodes.set_moved(node, moved);
        front = node;
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
        self.queue.join(nodes, me);
        cpu.watch.queued(LockKey::new(self).address(), Some(nodes.position(me)));
        spins.until(cpu, None, || nodes.is_head(me));
        if self.held.is_held() {
            shuffle(nodes, me);
        }
        spins.until(cpu, None, || self.held.take());
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
    fn waiters_on_the_heads_socket_move_to_the_front() {
        let nodes = Nodes::new();
        queue(&nodes, &[(1, 7), (2, 7), (3, 8), (4, 9), (5, 7), (6, 8), (7, 7), (8, 7)]);
        shuffle(&nodes, NodeId::new(1, 0));
        // 8 is the last, and the next to arrive links itself behind it.
        assert_eq!(order(&nodes, 1), [1, 2, 5, 7, 3, 4, 6, 8]);
        let moved = [2, 5, 7, 3].map(|cpu| nodes.moved(NodeId::new(cpu, 0)));
        assert_eq!(moved, [0, 1, 2, 0]);
    }

    #[test]
    fn at_most_a_batch_is_moved_ahead_of_a_waiter() {
        let nodes = Nodes::new();
        queue(&nodes, &[(1, 7), (2, 7), (3, 8), (4, 7), (5, 7), (6, 7)]);
        nodes.set_moved(NodeId::new(1, 0), BATCH - 1);
        shuffle(&nodes, NodeId::new(1, 0));
        assert_eq!(order(&nodes, 1), [1, 2, 4, 3, 5, 6]);
        assert_eq!(nodes.moved(NodeId::new(4, 0)), BATCH, "nor does the next head move any");
        shuffle(&nodes, NodeId::new(4, 0));
        assert_eq!(order(&nodes, 4), [4, 3, 5, 6]);
    }
}
