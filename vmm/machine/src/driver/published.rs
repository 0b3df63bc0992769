//! Schedule state that idle watchers read without the core's lock.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use base::units::SlotId;
use sched::{Core, VcpuIndex};

/// State published by the schedule; may be out of date.
#[derive(Debug)]
pub(super) struct PublishedState {
    /// By slot, the vCPU that occupies it.
    occupants: Box<[AtomicU32]>,
    /// Whether any vCPU waits for a slot.
    has_waiters: AtomicBool,
}

/// Marks a free slot in [`PublishedState::occupants`].
const NONE: u32 = u32::MAX;

impl PublishedState {
    pub(super) fn new(slots: usize) -> Self {
        let occupants = (0..slots).map(|_| AtomicU32::new(NONE)).collect();
        Self { occupants, has_waiters: AtomicBool::new(false) }
    }

    /// Called under the core's lock after each event. Writes only changes.
    pub(super) fn publish(&self, core: &Core) {
        for (occupant, current) in self.occupants.iter().zip(core.slots()) {
            let current = current.map_or(NONE, |vcpu| vcpu.0);
            if occupant.load(Relaxed) != current {
                occupant.store(current, Relaxed);
            }
        }
        if self.has_waiters.load(Relaxed) != core.has_waiters() {
            self.has_waiters.store(core.has_waiters(), Relaxed);
        }
    }

    pub(super) fn occupant(&self, slot: SlotId) -> Option<VcpuIndex> {
        let vcpu = self.occupants[slot.0 as usize].load(Relaxed);
        (vcpu != NONE).then_some(VcpuIndex(vcpu))
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.has_waiters.load(Relaxed)
    }
}
