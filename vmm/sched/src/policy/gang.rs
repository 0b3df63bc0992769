//! `gang`: all slots serve one VM at a time and switch to the next VM at the same moment. A slot that the VM
//! cannot use stays idle. After Ousterhout's coscheduling (ICDCS 1982). Suitable for VMs as wide as the host
//! whose vCPUs contend for the same locks; wasteful for others.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue};
use crate::event::{Observation, VcpuIndex};
use base::units::{Nanos, SlotId};

#[derive(Debug)]
pub(super) struct Gang {
    queue: Queue,
    vms: Box<[u32]>,
    vm_count: u32,
    slice: Nanos,
    /// The VM being served.
    current: u32,
    /// The end of its slice.
    ends: Nanos,
    /// Last deadline of each vCPU. If a VM has more vCPUs than slots, two of its slices may follow each
    /// other: the second begins when the first vCPU leaves, while the others are still in the previous slice.
    given: Box<[Nanos]>,
}

impl Gang {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            queue: Queue::with_room(setup.vms.len()),
            vms: setup.vms.into(),
            vm_count: setup.vms.iter().max().map_or(1, |vm| vm + 1),
            slice: setup.slice,
            current: 0,
            ends: Nanos::ZERO,
            given: vec![Nanos::ZERO; setup.vms.len()].into(),
        }
    }

    fn take(&mut self, vm: u32) -> Option<VcpuIndex> {
        let vms = &self.vms;
        self.queue.take(|vcpu| vms[vcpu.ix()] == vm)
    }

    fn waits(&self, vm: u32) -> bool {
        self.queue.iter().any(|vcpu| self.vms[vcpu.ix()] == vm)
    }

    fn runs(&self, vm: u32, view: &View<'_>) -> bool {
        view.slots.iter().flatten().any(|vcpu| self.vms[vcpu.ix()] == vm)
    }

    /// Starts the slice of the next VM that has a waiting vCPU, and takes the first of its vCPUs.
    fn advance(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        self.ends = view.now.after(self.slice);
        for step in 1..=self.vm_count {
            let vm = (self.current + step) % self.vm_count;
            if let Some(vcpu) = self.take(vm) {
                self.current = vm;
                return Some(vcpu);
            }
        }
        None
    }
}

impl Policy for Gang {
    fn ready(&mut self, vcpu: VcpuIndex, _: Ready, _: &View<'_>) {
        self.queue.push(vcpu);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.queue.remove(vcpu);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        let over = view.now >= self.ends;
        let vcpu = match if over { None } else { self.take(self.current) } {
            Some(vcpu) => vcpu,
            // Other vCPUs of the current VM still run: the slot stays idle until its slice ends.
            None if !over && self.runs(self.current, view) => return None,
            None => self.advance(view)?,
        };
        self.given[vcpu.ix()] = self.ends;
        Some(Pick::new(vcpu, self.ends))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        let vm = self.vms[vcpu.ix()];
        let vms_turn = vm == self.current && view.now < self.ends;
        let others_wait = if vms_turn {
            view.now >= self.given[vcpu.ix()] && self.waits(vm)
        } else {
            !self.queue.is_empty()
        };
        if others_wait {
            return Verdict::Preempt(Why::Slice);
        }
        if view.now >= self.ends {
            self.ends = view.now.after(self.slice);
        }
        self.current = vm;
        self.given[vcpu.ix()] = self.ends;
        Verdict::Stay(self.ends)
    }

    fn is_work_conserving(&self) -> bool {
        false
    }
}
