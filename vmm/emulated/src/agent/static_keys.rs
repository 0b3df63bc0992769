//! Keeps the emulated host's kernel from changing its own code while guests run.
//!
//! QEMU drops its translations of a page *before* it performs a store into that page, and old
//! versions do not lock the page during translation either (fixed in 8.1). If one CPU changes code
//! that another is running, the old code may therefore be translated, and the translation kept. If
//! the old code is a temporary breakpoint of the kernel, it traps forever, and the host is frozen
//! (seen with QEMU 7.2 and 10.0, in `__schedule`, at the static key of preempt notifiers).
//!
//! KVM's static keys are such code: they change when the first VM is created, when the last VM is
//! destroyed, and when local APICs are enabled. With one VM of each kind always present, no key
//! changes once the second CPU is up.

use super::{AgentError, context};
use base::units::VcpuId;
use boot::layout;
use kvm::{KvmVm, Vcpu, Wiring, sys::ram::Ram};

/// Two VMs that never run.
#[derive(Debug)]
pub struct StaticKeys {
    _vms: [(KvmVm, Vcpu); 2],
}

impl StaticKeys {
    /// Creates a VM with local APICs, whose vCPU leaves its APIC disabled as at reset, and one
    /// without. Must be called while only one CPU is up.
    pub fn hold() -> Result<Self, AgentError> {
        Ok(Self { _vms: [make_vm(Wiring::Full)?, make_vm(Wiring::Bare)?] })
    }
}

fn make_vm(wiring: Wiring) -> Result<(KvmVm, Vcpu), AgentError> {
    let memory = Ram::default();
    let vm = KvmVm::new(memory, wiring, layout::KVM_TSS, layout::KVM_IDENTITY_MAP)
        .map_err(context("a VM that holds KVM's static keys"))?;
    let vcpu = vm.create_vcpu(VcpuId(0)).map_err(context("its vCPU"))?;
    Ok((vm, vcpu))
}
