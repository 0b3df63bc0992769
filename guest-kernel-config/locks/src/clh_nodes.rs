//! CLH nodes: each CPU waits at the node of its predecessor.
//!
//! A node belongs to one CPU permanently. Nodes are numbered instead of addressed by pointers, so
//! they cannot change hands as the nodes of a CLH lock do: the first holder of a lock has no
//! predecessor, and would lose a node each time. Instead, the successor gives the node back.

use crate::node::{NESTINGS, NodeId};
use crate::sync::{AtomicU16, MAX_CPUS, Ordering};

/// The node has not been in a queue yet.
const FREE: u16 = 0;
/// Its CPU waits for the lock, or holds it.
const PENDING: u16 = 1;
/// Its CPU has released the lock to its successor. Every value from here on means released, for
/// [`Position`](crate::Position).
const RELEASED: u16 = 2;
/// The successor has seen the release: the node is free again.
const GIVEN_BACK: u16 = 3;

/// One CPU's nodes, in two cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct CpuNodes([AtomicU16; NESTINGS]);

impl CpuNodes {
    const fn new() -> Self {
        Self([const { AtomicU16::new(FREE) }; NESTINGS])
    }
}

/// The nodes of all CPUs, for all [`ClhLock`](crate::ClhLock)s.
#[derive(Debug)]
pub(crate) struct ClhNodes([CpuNodes; MAX_CPUS]);

impl ClhNodes {
    pub(crate) const fn new() -> Self {
        Self([const { CpuNodes::new() }; MAX_CPUS])
    }

    /// Allocates a node of `cpu`, unless all are in use.
    ///
    /// Checks and sets a node in one step, because a handler may interrupt. Acquires the accesses
    /// of the CPU that gave it back.
    pub(crate) fn alloc(&self, cpu: usize) -> Option<NodeId> {
        let try_alloc = |node: &AtomicU16| {
            let from = node.load(Ordering::Relaxed);
            matches!(from, FREE | GIVEN_BACK)
                && node
                    .compare_exchange(from, PENDING, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let level = self.0[cpu].0.iter().position(try_alloc)?;
        Some(NodeId::new(cpu, level as u16))
    }

    /// The word that shows whether the node's CPU has released the lock.
    pub(crate) fn gate(&self, id: NodeId) -> &AtomicU16 {
        &self.0[id.cpu()].0[usize::from(id.level())]
    }

    /// Whether the node's CPU has released the lock. Acquires its writes.
    #[inline]
    pub(crate) fn is_released(&self, id: NodeId) -> bool {
        self.gate(id).load(Ordering::Acquire) >= RELEASED
    }

    /// Releases the lock to the successor.
    pub(crate) fn release(&self, id: NodeId) {
        self.gate(id).store(RELEASED, Ordering::Release);
    }

    /// Gives the node back to its CPU: no other CPU reads it any longer.
    pub(crate) fn give_back(&self, id: NodeId) {
        self.gate(id).store(GIVEN_BACK, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_in_use_until_its_successor_frees_it() {
        let nodes = ClhNodes::new();
        let taken: [_; NESTINGS] = core::array::from_fn(|_| nodes.alloc(3));
        assert_eq!(nodes.alloc(3), None);
        let second = taken[1].expect("none was in use");
        assert!(!nodes.is_released(second));
        nodes.release(second);
        assert!(nodes.is_released(second));
        assert_eq!(nodes.alloc(3), None, "the successor still polls it");
        nodes.give_back(second);
        assert_eq!(nodes.alloc(3), Some(second));
    }
}
