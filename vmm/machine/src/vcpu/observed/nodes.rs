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
/// Offset in a node, after the address of the next node (`struct mcs_spinlock`). Nonzero for the head of the
/// queue if another node was ahead of it before.
const LOCKED: u64 = 8;
/// Offset of the number of nodes in use, in a CPU's first node.
const COUNT: u64 = 12;

/// The position of a vCPU in a queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queued {
    /// Unknown.
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
struct NodePlace {
    virt: AtomicU64,
    physical: AtomicU64,
}

/// The nodes of all vCPUs of a machine.
#[derive(Debug)]
pub(super) struct Nodes(Box<[NodePlace]>);

impl Nodes {
    pub(super) fn new(vcpus: VcpuCount) -> Self {
        Self(vcpus.ids().map(|_| NodePlace::default()).collect())
    }

    pub(super) fn cpus(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns the queue position of the stopped vCPU `id`, whose nodes of `size` bytes are at `virt`. Reads
    /// the nodes of other vCPUs that have been stopped before.
    pub(super) fn queued(&self, id: VcpuId, virt: u64, size: u64, cpu: &impl StoppedCpu) -> Queued {
        let Some(physical) = self.place(id, virt, size, cpu) else { return Queued::Unknown };
        let in_use = match count(physical, cpu) {
            Some(0) => return Queued::No,
            Some(in_use) if u64::from(in_use) <= NODES => u64::from(in_use),
            _ => return Queued::Unknown,
        };
        let offset = (in_use - 1) * size;
        match word(physical + offset + LOCKED, cpu) {
            None => return Queued::Unknown,
            Some(0) => {}
            Some(_) => return Queued::First,
        }
        let is_behind =
            self.0.iter().enumerate().any(|(ix, other)| {
                ix != id.0 as usize && is_before(other, virt + offset, size, cpu)
            });
        if is_behind {
            return Queued::Behind;
        }
        let linked = next(physical + offset, cpu).is_some_and(|next| next != 0);
        Queued::Alone { ix: in_use as u32 - 1, linked }
    }

    /// Returns the guest-physical address of a vCPU's nodes, which do not move.
    fn place(&self, id: VcpuId, virt: u64, size: u64, cpu: &impl StoppedCpu) -> Option<u64> {
        let place = self.0.get(id.0 as usize)?;
        if place.virt.load(Acquire) == virt {
            return Some(place.physical.load(Relaxed));
        }
        let physical = cpu.translate(virt)?;
        if physical % PAGE + NODES * size > PAGE {
            return None;
        }
        place.physical.store(physical, Relaxed);
        place.virt.store(virt, Release);
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
fn is_before(place: &NodePlace, virt: u64, size: u64, cpu: &impl StoppedCpu) -> bool {
    if place.virt.load(Acquire) == 0 {
        return false;
    }
    let physical = place.physical.load(Relaxed);
    let in_use = u64::from(count(physical, cpu).unwrap_or(0)).min(NODES);
    (0..in_use).any(|ix| next(physical + ix * size, cpu) == Some(virt))
}

/// Returns the virtual address of the next node, or 0 if it is the last.
fn next(node: u64, cpu: &impl StoppedCpu) -> Option<u64> {
    let mut bytes = [0; 8];
    cpu.read(node, &mut bytes).then(|| u64::from_le_bytes(bytes))
}
