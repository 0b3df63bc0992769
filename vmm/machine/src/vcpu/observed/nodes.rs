//! The nodes of CPUs in the queues of queued spinlocks (`struct qnode`, kernel/locking/qspinlock.c). Each CPU
//! has four, because interrupts may occur during a wait.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{PAGE, StoppedCpu};
use base::units::{VcpuCount, VcpuId};

/// Number of nodes per CPU, one for each context that may interrupt the wait of another context.
const NODES: u64 = 4;
/// Offset of `locked` in a node (`struct mcs_spinlock`). Nonzero for the head of the queue if another node
/// was ahead of it before.
const LOCKED: u64 = 8;
/// Offset of the number of nodes in use, in a CPU's first node.
const COUNT: u64 = 12;

/// The position of a vCPU in a queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    #[default]
    Unknown,
    /// Outside any queue.
    No,
    /// At the head of the queue, as signalled by its predecessor.
    First,
    /// No other vCPU is known to be ahead of it.
    Alone {
        /// Index of the node among the CPU's nodes.
        ix: u32,
        /// Whether another node has joined behind it.
        linked: bool,
    },
    /// Behind another node.
    Behind,
}

/// The addresses of a vCPU's nodes; zero if unknown.
#[derive(Debug, Default)]
struct NodeAddress {
    virt: AtomicU64,
    physical: AtomicU64,
}

/// The nodes of all vCPUs of a machine.
#[derive(Debug)]
pub(super) struct Nodes(Box<[NodeAddress]>);

impl Nodes {
    pub(super) fn new(vcpus: VcpuCount) -> Self {
        Self(vcpus.ids().map(|_| NodeAddress::default()).collect())
    }

    pub(super) fn cpus(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns the queue position of the stopped vCPU `id`, whose nodes of `size` bytes are at `virt`. Reads
    /// the nodes of other vCPUs that have been stopped before.
    pub(super) fn find(&self, id: VcpuId, virt: u64, size: u64, cpu: &impl StoppedCpu) -> Position {
        let Some(physical) = self.address(id, virt, size, cpu) else { return Position::Unknown };
        let in_use = match count(physical, cpu) {
            Some(0) => return Position::No,
            Some(in_use) if u64::from(in_use) <= NODES => u64::from(in_use),
            _ => return Position::Unknown,
        };
        let offset = (in_use - 1) * size;
        match word(physical + offset + LOCKED, cpu) {
            None => return Position::Unknown,
            Some(0) => {}
            Some(_) => return Position::First,
        }
        let is_behind = (0..)
            .zip(&self.0)
            .any(|(ix, peer)| ix != id.0 && is_before(peer, virt + offset, size, cpu));
        if is_behind {
            return Position::Behind;
        }
        let linked = next(physical + offset, cpu).is_some_and(|next| next != 0);
        Position::Alone { ix: in_use as u32 - 1, linked }
    }

    /// Returns the guest-physical address of a vCPU's nodes, which do not move.
    fn address(&self, id: VcpuId, virt: u64, size: u64, cpu: &impl StoppedCpu) -> Option<u64> {
        let node = self.0.get(id.0 as usize)?;
        if node.virt.load(Acquire) == virt {
            return Some(node.physical.load(Relaxed));
        }
        let physical = cpu.translate(virt)?;
        if physical % PAGE + NODES * size > PAGE {
            return None;
        }
        node.physical.store(physical, Relaxed);
        node.virt.store(virt, Release);
        Some(physical)
    }
}

fn count(physical: u64, cpu: &impl StoppedCpu) -> Option<u32> {
    word(physical + COUNT, cpu)
}

fn word(at: u64, cpu: &impl StoppedCpu) -> Option<u32> {
    let mut bytes = [0; 4];
    cpu.read(at, &mut bytes).then(|| u32::from_le_bytes(bytes))
}

/// Whether one of a vCPU's nodes is directly ahead of the node at `virt`.
fn is_before(node: &NodeAddress, virt: u64, size: u64, cpu: &impl StoppedCpu) -> bool {
    if node.virt.load(Acquire) == 0 {
        return false;
    }
    let physical = node.physical.load(Relaxed);
    let in_use = u64::from(count(physical, cpu).unwrap_or(0)).min(NODES);
    (0..in_use).any(|ix| next(physical + ix * size, cpu) == Some(virt))
}

/// Returns the virtual address of the next node, or 0 if it is the last.
fn next(node: u64, cpu: &impl StoppedCpu) -> Option<u64> {
    let mut bytes = [0; 8];
    cpu.read(node, &mut bytes).then(|| u64::from_le_bytes(bytes))
}
