//! The nodes by which CPUs stand in the queues of queued spinlocks (`struct qnode`, kernel/locking/qspinlock.c): four
//! for each CPU, as interrupts may come into a wait.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{PAGE, StoppedCpu};
use base::units::{VcpuCount, VcpuId};

/// Nodes of a CPU, one for each context that can wait in another one's place.
const NODES: u64 = 4;
/// In a node, after the address of the next one (`struct mcs_spinlock`): nonzero for the first of the queue, if
/// another one was ahead of it before.
const LOCKED: u64 = 8;
/// In a CPU's first node: how many of its nodes are in use.
const COUNT: u64 = 12;

/// Does a vCPU stand in a queue?
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queued {
    /// It cannot be told.
    #[default]
    Unknown,
    /// No.
    No,
    /// It was let to the front by the one before it.
    First,
    /// No other vCPU is known to be ahead of its node of this index. If `linked`, one has joined behind it.
    Alone {
        /// Of the CPU's nodes.
        ix: u32,
        /// It has a next one.
        linked: bool,
    },
    /// Behind another one.
    Behind,
}

/// Where a vCPU has its nodes; zero: not known yet.
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

    /// Number of vCPUs.
    pub(super) fn cpus(&self) -> u32 {
        self.0.len() as u32
    }

    /// Does the stopped vCPU `id`, whose nodes of `size` bytes are at `virt`, stand in a queue? Reads the nodes of those
    /// others that have been stopped before.
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

    /// The guest-physical address of a vCPU's nodes, which do not move.
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

/// Is one of a vCPU's nodes right before the node at `virt`?
fn is_before(place: &NodePlace, virt: u64, size: u64, cpu: &impl StoppedCpu) -> bool {
    if place.virt.load(Acquire) == 0 {
        return false;
    }
    let physical = place.physical.load(Relaxed);
    let in_use = u64::from(count(physical, cpu).unwrap_or(0)).min(NODES);
    (0..in_use).any(|ix| next(physical + ix * size, cpu) == Some(virt))
}

/// The virtual address of the node behind this one; 0: none.
fn next(node: u64, cpu: &impl StoppedCpu) -> Option<u64> {
    let mut bytes = [0; 8];
    cpu.read(node, &mut bytes).then(|| u64::from_le_bytes(bytes))
}
