//! Who is where at this moment, for somebody who watches.

use super::{Driver, now};
use crate::{
    sched::{
        accounting::Totals,
        core::State,
        event::{LockActivity, VcpuIndex},
    },
    units::{Nanos, VcpuId},
};

/// One vCPU, as it was seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Number of its VM.
    pub vm: usize,
    /// Which it is there.
    pub id: VcpuId,
    /// Where it is.
    pub state: State,
    /// What it does with locks; may be over already.
    pub activity: LockActivity,
    /// Locks that it has taken, if its guest counts them.
    pub taken: Option<u64>,
}

/// A schedule at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// When, by the schedule's clock.
    pub at: Nanos,
    /// All vCPUs, by [`VcpuIndex`].
    pub vcpus: Vec<Seen>,
    /// The host CPU of each slot, and who has it.
    pub slots: Vec<(usize, Option<VcpuIndex>)>,
    /// The sums so far.
    pub totals: Totals,
}

impl Driver {
    /// Looks at everybody. Under the core's lock states are copied and nothing else is done; what
    /// vCPUs do with locks is read from their lines after that.
    pub fn snapshot(&self) -> Snapshot {
        let mut states = Vec::with_capacity(self.vms.len());
        let mut slots: Vec<_> = self.cpus.iter().map(|cpu| (*cpu, None)).collect();
        let totals = {
            let inner = self.lock();
            states.extend(self.all().map(|vcpu| inner.core.state(vcpu)));
            for ((_, whose), has) in slots.iter_mut().zip(inner.core.slots()) {
                *whose = *has;
            }
            inner.core.accounting().totals()
        };
        let at = now();
        let seen = |(vcpu, state)| {
            let (vm, id) = self.id_of(vcpu);
            let lines = self.lines[vm].get();
            Seen {
                vm,
                id,
                state,
                activity: lines.map(|lines| lines.activity(id, at)).unwrap_or_default(),
                taken: lines.and_then(|lines| lines.taken(id)),
            }
        };
        Snapshot { at, vcpus: self.all().zip(states).map(seen).collect(), slots, totals }
    }

    fn all(&self) -> impl Iterator<Item = VcpuIndex> {
        (0..self.vms.len() as u32).map(VcpuIndex)
    }
}
