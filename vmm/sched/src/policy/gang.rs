//! `gang`: all slots serve one VM at a time and switch to the next VM at the same moment. A slot that the VM
//! cannot use stays idle. After Ousterhout's coscheduling (ICDCS 1982). Suitable for VMs as wide as the host
//! whose vCPUs contend for the same locks; wasteful for others.

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View, queue::Queue};
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
    slice_end: Nanos,
    /// Last deadline of each vCPU. If a VM has more vCPUs than slots, two of its slices may follow each
    /// other: the second begins when the first vCPU leaves, while the others are still in the previous slice.
    deadlines: Box<[Nanos]>,
}

impl Gang {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            queue: Queue::with_room(setup.vms.len()),
            vms: setup.vms.into(),
            vm_count: setup.vms.iter().max().map_or(1, |vm| vm + 1),
            slice: setup.slice,
            current: 0,
            slice_end: Nanos::ZERO,
            deadlines: vec![Nanos::ZERO; setup.vms.len()].into(),
        }
    }

    fn take(&mut self, vm: u32) -> Option<VcpuIndex> {
        let vms = &self.vms;
        self.queue.take(|vcpu| vms[vcpu.ix()] == vm)
    }

    fn has_waiting(&self, vm: u32) -> bool {
        self.queue.iter().any(|vcpu| self.vms[vcpu.ix()] == vm)
    }

    fn is_running(&self, vm: u32, view: &View<'_>) -> bool {
        view.slots.iter().flatten().any(|vcpu| self.vms[vcpu.ix()] == vm)
    }

    /// Starts the slice of the next VM that has a waiting vCPU, and takes the first of its vCPUs.
    fn advance(&mut self, view: &View<'_>) -> Option<VcpuIndex> {
        self.slice_end = view.now.after(self.slice);
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

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.queue.remove(vcpu);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        let has_expired = view.now >= self.slice_end;
        let vcpu = match if has_expired { None } else { self.take(self.current) } {
            Some(vcpu) => vcpu,
            // Other vCPUs of the current VM still run: the slot stays idle until the VM's slice ends.
            None if !has_expired && self.is_running(self.current, view) => return None,
            None => self.advance(view)?,
        };
        self.deadlines[vcpu.ix()] = self.slice_end;
        Some(Pick::new(vcpu, self.slice_end))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        let vm = self.vms[vcpu.ix()];
        let is_current = vm == self.current && view.now < self.slice_end;
        let others_wait = if is_current {
            view.now >= self.deadlines[vcpu.ix()] && self.has_waiting(vm)
        } else {
            !self.queue.is_empty()
        };
        if others_wait {
            return Verdict::Preempt(Reason::Slice);
        }
        if view.now >= self.slice_end {
            self.slice_end = view.now.after(self.slice);
        }
        self.current = vm;
        self.deadlines[vcpu.ix()] = self.slice_end;
        Verdict::Stay(self.slice_end)
    }

    fn is_work_conserving(&self) -> bool {
        false
    }
}
