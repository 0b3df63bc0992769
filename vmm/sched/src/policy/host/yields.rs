//! Yields to another vCPU: by a kicker, and by a vCPU in a pause loop.

use super::queue::QueueState;
use super::{HostScheduler, Reason, Verdict, View};
use crate::event::VcpuIndex;

impl HostScheduler {
    /// Whether `vcpu` waits for a CPU that another vCPU has.
    pub(super) fn waits_behind_current(&self, vcpu: VcpuIndex) -> bool {
        let entity = self.queues.get(vcpu);
        entity.state == QueueState::Queued && self.queues.cpus[entity.cpu].current.is_some()
    }

    /// Yields from the current `vcpu` to `to`, which waits for a CPU (`yield_to`). `to` becomes its
    /// CPU's next buddy, and is run if the order of that queue permits it.
    pub(super) fn yield_to(
        &mut self,
        vcpu: VcpuIndex,
        to: VcpuIndex,
        cause: Reason,
        view: &View<'_>,
    ) -> Verdict {
        let (cpu, target) = (self.queues.get(vcpu).cpu, self.queues.get(to).cpu);
        self.charge(cpu, view);
        self.queues.cpus[target].next = Some(to);
        if self.queues.waiting(cpu).next().is_some() {
            self.order.yield_task(&mut self.queues, cpu);
        }
        if target != cpu {
            self.charge(target, view);
            self.queues.cpus[target].need_resched = true;
            self.recall(target, None);
        }
        self.decide(cpu, cause)
    }

    /// Returns the vCPU that KVM yields to for a vCPU in a pause loop.
    pub(super) fn spin_target(&mut self, spinner: VcpuIndex, view: &View<'_>) -> Option<VcpuIndex> {
        let vm = view.vm_of(spinner);
        let last = self.boosted[vm as usize];
        let count = self.queues.entities.len() as u32;
        let candidates = (last + 1..count).chain(0..=last.min(count - 1)).map(VcpuIndex);
        for vcpu in candidates.filter(|vcpu| view.vm_of(*vcpu) == vm && *vcpu != spinner) {
            let entity = self.queues.get_mut(vcpu);
            if entity.state != QueueState::Queued {
                continue;
            }
            let is_eligible = !entity.yielded || entity.dy_eligible;
            entity.dy_eligible ^= entity.yielded;
            if is_eligible {
                self.boosted[vm as usize] = vcpu.0;
                return Some(vcpu);
            }
        }
        None
    }
}
