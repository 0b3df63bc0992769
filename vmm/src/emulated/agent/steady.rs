//! Keeps the emulated host's kernel from changing its own code while guests run.
//!
//! QEMU drops its translations of a page *before* it lets a store into that page happen, and old
//! versions do not lock the page while they translate it either (fixed in 8.1). Code that one CPU
//! changes while the other runs it may so be translated as it was, for good; a breakpoint that the
//! kernel puts there for a moment and takes away again then traps for ever, and the host is frozen
//! (seen with QEMU 7.2 and 10.0, in `__schedule`, at the static key of preempt notifiers).
//!
//! KVM's static keys are such places: they change when the first machine comes, or the last one
//! goes, and when local APICs are switched on. With one of each kind always there, none of them
//! changes after the second CPU is up.

use vm_memory::GuestMemoryMmap;

use super::{Failure, when};
use crate::{
    boot::layout,
    kvm::{KvmVm, Vcpu, Wiring},
    units::VcpuId,
};

/// Machines that never run.
#[derive(Debug)]
pub struct Steady {
    _machines: [(KvmVm, Vcpu); 2],
}

impl Steady {
    /// Makes one with local APICs, whose vCPU leaves its own switched off as it is at reset, and
    /// one without. To be called while one CPU is up alone.
    pub fn hold() -> Result<Self, Failure> {
        Ok(Self { _machines: [machine(Wiring::Full)?, machine(Wiring::Bare)?] })
    }
}

fn machine(wiring: Wiring) -> Result<(KvmVm, Vcpu), Failure> {
    let memory = GuestMemoryMmap::default();
    let vm = KvmVm::new(memory, wiring, layout::KVM_TSS, layout::KVM_IDENTITY_MAP)
        .map_err(when("a machine that holds KVM's static keys"))?;
    let vcpu = vm.create_vcpu(VcpuId(0)).map_err(when("its vCPU"))?;
    Ok((vm, vcpu))
}
