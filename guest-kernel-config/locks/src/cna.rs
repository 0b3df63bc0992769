//! A queue that serves the waiters on one socket first.

use crate::acquire::Ticketless;
use crate::halt::Waits;
use crate::handed::{ALONE, HandedQueue};
use crate::node::{Gate, NodeId, Nodes};
use crate::sync::{AtomicU16, Ordering};
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// Limit on consecutive handovers that pass over a waiter that came earlier (paper: `THRESHOLD`, 0xffff). The cache lines
/// of the lock and of its data move to another socket once in this many handovers.
const MAX_LOCAL: u16 = 0xffff;

/// The compact NUMA-aware lock: D. Dice and A. Kogan, "Compact NUMA-Aware Locks" (EuroSys 2019), which
/// was also proposed for Linux (with a limit of 10 ms).
///
/// An [`McsLock`](crate::McsLock) that is handed to a waiter on the holder's socket ([`Pv::socket`]), if
/// there is one:
///
/// - A CPU that gets the lock chooses its successor: the first waiter in the queue on its socket. The
///   waiters ahead of the successor are set aside, in order.
/// - If no waiter is on its socket, or after 65 535 consecutive choices that passed over a waiter, the
///   waiters set aside return to the front of the queue, and the first of them is next.
///
/// In the paper the holder chooses at its release, and returns the other waiters with a probability of 1/65 536. Here a
/// waiter may be passed over 65 535 times for each CPU ahead of it, and as often at the front: `65 536 * (n - 1)`. A
/// preempted waiter blocks the lock as in an [`McsLock`](crate::McsLock). Supports as many CPUs as
/// [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct CnaLock {
    queue: HandedQueue,
    /// Names of the first and last waiter set aside; zero: none. Only the holder uses these and the
    /// fields below.
    first_aside: AtomicU16,
    last_aside: AtomicU16,
    /// Consecutive choices that passed over a waiter.
    local_handovers: AtomicU16,
}

/// A chain of waiters: the first and the last.
type Waiters = (NodeId, NodeId);

impl CnaLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        let [first_aside, last_aside, local_handovers] = [const { AtomicU16::new(0) }; 3];
        Self { queue: HandedQueue::new(), first_aside, last_aside, local_handovers }
    }

    /// Chooses the successor of the holder, whose node is `me`.
    fn choose_next<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) {
        let nodes = &cpu.waiters.nodes;
        let aside = self.aside();
        let (tail, next) = aside.map_or((ALONE, 0), |(first, last)| (last.name(), first.name()));
        let Some(first) = self.queue.next_or_last(cpu, me, tail, next) else {
            // The waiters set aside are the queue.
            self.local_handovers.store(0, Ordering::Relaxed);
            return self.set_aside(None);
        };
        let may_pass = aside.is_none() || self.local_handovers.load(Ordering::Relaxed) < MAX_LOCAL;
        let near = if may_pass { first_on_socket(nodes, first, nodes.socket(me)) } else { None };
        let next = match (near, aside) {
            (Some((before, near)), _) => {
                if let Some(before) = before {
                    self.append_aside(nodes, aside, (first, before));
                }
                near
            }
            (None, Some((first_aside, last_aside))) => {
                nodes.link(last_aside, first);
                self.set_aside(None);
                first_aside
            }
            (None, None) => first,
        };
        let is_passed = self.first_aside.load(Ordering::Relaxed) != 0;
        let count = if is_passed { self.local_handovers.load(Ordering::Relaxed) + 1 } else { 0 };
        self.local_handovers.store(count, Ordering::Relaxed);
        self.queue.set_next(next);
    }

    fn aside(&self) -> Option<Waiters> {
        let [first, last] = [&self.first_aside, &self.last_aside]
            .map(|name| NodeId::parse(name.load(Ordering::Relaxed)));
        first.zip(last)
    }

    fn set_aside(&self, aside: Option<Waiters>) {
        let (first, last) = aside.map_or((0, 0), |(first, last)| (first.name(), last.name()));
        self.first_aside.store(first, Ordering::Relaxed);
        self.last_aside.store(last, Ordering::Relaxed);
    }

    /// Moves `chain` from the front of the queue behind the waiters already set aside.
    fn append_aside(&self, nodes: &Nodes, aside: Option<Waiters>, chain: Waiters) {
        // If the queue runs empty, the next CPU to arrive links itself there.
        nodes.unlink_behind(chain.1);
        let first = match aside {
            Some((first, last)) => {
                nodes.link(last, chain.0);
                first
            }
            None => chain.0,
        };
        self.set_aside(Some((first, chain.1)));
    }
}

/// The first waiter on `socket` from `first` on, and its predecessor. `None` if no linked node is there.
fn first_on_socket(nodes: &Nodes, first: NodeId, socket: u16) -> Option<(Option<NodeId>, NodeId)> {
    let (mut before, mut node) = (None, first);
    while nodes.socket(node) != socket {
        before = Some(node);
        node = nodes.linked_behind(node)?;
    }
    Some((before, node))
}

impl Ticketless for CnaLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::TimesFromQueue(MAX_LOCAL as u32 + 1);

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.queue.take_free()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let waited = self.queue.wait(cpu, |nodes, me| nodes.set_socket(me, cpu.pv.socket()));
        if let Some(me) = waited {
            self.choose_next(cpu, me);
            nodes.free(me);
        }
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        if let Some(next) = self.queue.next_or_free(|| cpu.pv.spin_hint()) {
            // From here on the lock may be freed memory.
            cpu.waiters.nodes.open(next, Gate::OPEN);
        }
        false
    }

    crate::handed::waiters_of_handed_queue!(queue);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::MAX_CPUS;
    use crate::test_stage::Stage;

    impl Stage<CnaLock> {
        /// A lock held by CPU 0.
        fn held() -> Self {
            let stage = Self::without_waits(CnaLock::new());
            assert!(stage.try_lock(0));
            stage
        }

        /// Puts a CPU on `socket` into the queue, where it does not spin yet.
        fn join(&self, id: usize, socket: u16) {
            let nodes = &self.waiters.nodes;
            let me = nodes.alloc(id).expect("none in use");
            nodes.set_socket(me, socket);
            assert!(self.lock.queue.join(&self.cpu(id), me));
        }

        /// Releases the lock; returns the CPU that holds it then.
        fn hand_over(&self, holder: usize) -> Option<usize> {
            let nodes = &self.waiters.nodes;
            let is_open = |id: &usize| nodes.gate(NodeId::new(*id, 0)) == Gate::OPEN;
            self.unlock(holder);
            let next = (0..MAX_CPUS).find(is_open)?;
            let me = NodeId::new(next, 0);
            self.lock.choose_next(&self.cpu(next), me);
            nodes.reset(me);
            nodes.free(me);
            Some(next)
        }

        /// Serves all waiters; returns their order.
        fn order(&self) -> Vec<usize> {
            let mut holder = 0;
            let next = || {
                holder = self.hand_over(holder)?;
                Some(holder)
            };
            core::iter::from_fn(next).collect()
        }
    }

    #[test]
    fn waiters_on_one_socket_are_served_together() {
        let stage = Stage::held();
        for (id, socket) in [(1, 7), (2, 8), (3, 7), (4, 9), (5, 8), (6, 7), (7, 8)] {
            stage.join(id, socket);
        }
        // 7 is on the socket of 5, and 4 was set aside before it.
        assert_eq!(stage.order(), [1, 3, 6, 2, 5, 7, 4]);
        assert!(!stage.is_contended());
        assert!(stage.try_lock(1));
    }

    #[test]
    fn local_handovers_are_bounded() {
        let stage = Stage::held();
        for (id, socket) in [(1, 7), (9, 8), (2, 7)] {
            stage.join(id, socket);
        }
        let (mut holder, mut others) = (0, 0u32);
        loop {
            let next = stage.hand_over(holder).expect("three wait");
            if next == 9 {
                break;
            }
            others += 1;
            stage.join(holder, 7);
            holder = next;
        }
        // CPU 1 was ahead of it.
        assert_eq!(others, 1 + u32::from(MAX_LOCAL));
    }

    #[test]
    fn newcomers_queue_behind_waiters_set_aside() {
        let stage = Stage::held();
        for (id, socket) in [(1, 7), (2, 8), (3, 8), (4, 7)] {
            stage.join(id, socket);
        }
        assert_eq!(stage.hand_over(0), Some(1));
        assert_eq!(stage.hand_over(1), Some(4), "2 and 3 are set aside, and the queue is theirs");
        stage.join(5, 7);
        assert_eq!(stage.hand_over(4), Some(2));
        assert_eq!(stage.hand_over(2), Some(3));
        assert_eq!(stage.hand_over(3), Some(5));
        assert_eq!(stage.hand_over(5), None);
    }
}
