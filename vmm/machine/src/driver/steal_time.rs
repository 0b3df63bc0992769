//! Writes the steal-time records of guests, under the core's lock, when a vCPU gets or loses its slot.

use std::sync::atomic::Ordering::Release;

use vm_memory::{Bytes, GuestAddress};

use super::user_driver::{Driver, Inner, now};
use base::units::{Gpa, Nanos};
use kvm::sys::ram::Ram;
use sched::{
    event::VcpuIndex,
    steal::{ReservedBits, Store},
};

impl Driver {
    /// Makes this schedule write the steal time of VM number `vm`, which has this memory.
    pub fn write_steal_time(&self, vm: usize, memory: Option<Ram>) {
        if let Some(memory) = memory {
            let _ = self.steal_memory[vm].set(memory);
        }
    }

    /// Publishes whether the vCPU is preempted, and after its wait its steal time. Called under the core's lock.
    pub(super) fn publish_steal(&self, vcpu: VcpuIndex, inner: &mut Inner, now: Nanos) {
        let Some(memory) = self.steal_memory_of(vcpu) else { return };
        let Inner { core, steal, .. } = inner;
        let ready_time = core.accounting().ready_time(vcpu, now);
        let store = |at, field| write(memory, at, field);
        steal[vcpu.ix()].update(core.state(vcpu), ready_time, store);
    }

    pub(super) fn set_steal_msr(&self, vcpu: VcpuIndex, value: u64) -> Result<(), ReservedBits> {
        let memory = self.steal_memory_of(vcpu).ok_or(ReservedBits)?;
        let mut inner = self.lock();
        let ready_time = inner.core.accounting().ready_time(vcpu, now());
        let store = |at, field| write(memory, at, field);
        inner.steal[vcpu.ix()].set_msr(value, ready_time, store)
    }

    fn steal_memory_of(&self, vcpu: VcpuIndex) -> Option<&Ram> {
        self.steal_memory[self.vms[vcpu.ix()] as usize].get()
    }
}

/// Has no effect at an address without memory, as with KVM.
fn write(memory: &Ram, Gpa(record): Gpa, field: Store) {
    let at = GuestAddress(record + field.offset());
    let _ = match field {
        Store::Steal(nanos) => memory.store(nanos, at, Release),
        Store::Version(version) => memory.store(version, at, Release),
        Store::Preempted(preempted) => memory.store(u8::from(preempted), at, Release),
    };
}
