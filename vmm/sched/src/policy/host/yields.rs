//! Yields to another vCPU: by a kicker, and by a vCPU in a pause loop.

use super::queue::QueueState;
use super::{HostScheduler, Verdict, View, Why};
use crate::event::VcpuIndex;

impl HostScheduler {
    /// Whether `vcpu` waits for a CPU that another vCPU has.
    pub(super) fn waits_for_another(&self, vcpu: VcpuIndex) -> bool {
        let entity = self.queues.of(vcpu);
        entity.place == QueueState::Queued && self.queues.cpus[entity.cpu].current.is_some()
    }

    /// Yields from the current `vcpu` to `to`, which waits for a CPU (`yield_to`). `to` becomes its
    /// CPU's next buddy, and is run if the order of that queue permits it.
    pub(super) fn yield_to(
        &mut self,
        vcpu: VcpuIndex,
        to: VcpuIndex,
        cause: Why,
        view: &View<'_>,
    ) -> Verdict {
        let (cpu, target) = (self.queues.of(vcpu).cpu, self.queues.of(to).cpu);
        self.charge(cpu, view);
        self.queues.cpus[target].next = Some(to);
        if self.queues.waiting(cpu).next().is_some() {
            self.law.yields(&mut self.queues, cpu);
        }
        if target != cpu {
            self.charge(target, view);
            self.queues.cpus[target].is_due = true;
            self.recall(target, None);
        }
        self.decide(cpu, cause)
    }

    /// Returns the vCPU that KVM yields to for a vCPU in a pause loop.
    pub(super) fn beneficiary(&mut self, spinner: VcpuIndex, view: &View<'_>) -> Option<VcpuIndex> {
        let vm = view.vm_of(spinner);
        let last = self.boosted[vm as usize];
        let count = self.queues.all.len() as u32;
        let around = (last + 1..count).chain(0..=last.min(count - 1)).map(VcpuIndex);
        for vcpu in around.filter(|vcpu| view.vm_of(*vcpu) == vm && *vcpu != spinner) {
            let entity = self.queues.of_mut(vcpu);
            if entity.place != QueueState::Queued {
                continue;
            }
            let takes = !entity.yielded || entity.takes_yields;
            entity.takes_yields ^= entity.yielded;
            if takes {
                self.boosted[vm as usize] = vcpu.0;
                return Some(vcpu);
            }
        }
        None
    }
}
