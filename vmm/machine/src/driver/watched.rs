//! Schedule state that idle watchers read without the core's lock.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use base::units::SlotId;
use sched::{Core, VcpuIndex};

/// State published by the schedule; may be out of date.
#[derive(Debug)]
pub(super) struct Watched {
    /// By slot, the vCPU that occupies it.
    occupants: Box<[AtomicU32]>,
    /// Whether any vCPU waits for a slot.
    wanted: AtomicBool,
}

/// Marks a free slot in [`Watched::occupants`].
const NONE: u32 = u32::MAX;

impl Watched {
    pub(super) fn new(slots: usize) -> Self {
        let occupants = (0..slots).map(|_| AtomicU32::new(NONE)).collect();
        Self { occupants, wanted: AtomicBool::new(false) }
    }

    /// Called under the core's lock after each event. Writes only changes.
    pub(super) fn publish(&self, core: &Core) {
        for (seen, now) in self.occupants.iter().zip(core.slots()) {
            let now = now.map_or(NONE, |vcpu| vcpu.0);
            if seen.load(Relaxed) != now {
                seen.store(now, Relaxed);
            }
        }
        if self.wanted.load(Relaxed) != core.is_wanted() {
            self.wanted.store(core.is_wanted(), Relaxed);
        }
    }

    pub(super) fn occupant(&self, slot: SlotId) -> Option<VcpuIndex> {
        let vcpu = self.occupants[slot.0 as usize].load(Relaxed);
        (vcpu != NONE).then_some(VcpuIndex(vcpu))
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }
}
