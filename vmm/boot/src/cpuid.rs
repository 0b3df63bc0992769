//! The CPUID of each vCPU: converts the CPUID supported by the host to one socket of N cores with
//! one thread each, running under a hypervisor with our own leaves.

use hypercalls::cpuid::{
    FEATURE_CONSOLE, FEATURE_DOORBELL, FEATURE_LOCK_HYPERCALLS, FEATURE_MACHINE_WORDS,
    FEATURE_OUTPUT_PAGE, FEATURE_PANIC, FEATURE_SLICE_END, FEATURE_TELEMETRY, FEATURE_WINDOW,
    FEATURE_YIELD_TO, LEAF_BASE, LEAF_FEATURES,
};
use hypercalls::{ABI_VERSION, ports};
use kvm_bindings::{KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use super::{layout, topology};
use base::{
    steal_source::StealSource,
    units::{VcpuCount, VcpuId},
};

/// Parameters of the CPUID table.
#[derive(Debug, Clone, Copy)]
pub struct CpuidSpec {
    /// Number of vCPUs. Each is a core.
    pub vcpus: VcpuCount,
    /// The host has `KVM_CAP_TSC_DEADLINE_TIMER`. KVM omits the bit from its supported CPUID
    /// because it depends on the in-kernel irqchip.
    pub tsc_deadline: bool,
    /// HLT halts inside KVM, where a kick can end it. Without local APICs HLT exits, and no
    /// feature that kicks a halted vCPU may be offered.
    pub halts_in_kvm: bool,
    /// Offer KVM's own kick, if HLT halts in KVM.
    pub kvm_kick: bool,
    /// The writer of the guest's steal time.
    pub steal: StealSource,
    /// Offer `lock_spinning` and `unlock_kick` of the contract (`--pv vmm`).
    pub lock_hypercalls: bool,
    /// Offer the doorbell of the contract (`--pv doorbell`), if HLT halts in KVM.
    pub doorbell: bool,
    /// Have the guest maintain telemetry lines at [`layout::TELEMETRY`].
    pub telemetry: bool,
}

/// Returns the CPUID table of `vcpu`, derived from the result of `KVM_GET_SUPPORTED_CPUID`.
pub fn table(
    supported: &[kvm_cpuid_entry2],
    spec: &CpuidSpec,
    vcpu: VcpuId,
) -> Vec<kvm_cpuid_entry2> {
    let mut table = supported.to_vec();
    features(&mut table, spec);
    kvm_leaves(&mut table, spec);
    topology::set(&mut table, spec.vcpus, vcpu);
    contract_leaves(&mut table, spec);
    table
}

/// Returns the entry of `leaf` (its first subleaf), if the table has it.
pub(super) fn find(table: &mut [kvm_cpuid_entry2], leaf: u32) -> Option<&mut kvm_cpuid_entry2> {
    table.iter_mut().find(|entry| entry.function == leaf && entry.index == 0)
}

/// Returns the XCR0 bits this table offers. None without XSAVE or leaf 0xd.
pub fn extended_state(table: &mut [kvm_cpuid_entry2]) -> Option<u64> {
    const XSAVE: u32 = 1 << 26;
    find(table, 1).filter(|entry| entry.ecx & XSAVE != 0)?;
    find(table, 0xd).map(|entry| u64::from(entry.edx) << 32 | u64::from(entry.eax))
}

/// An entry with a significant subleaf.
pub(super) fn subleaf(leaf: u32, index: u32, registers: [u32; 4]) -> kvm_cpuid_entry2 {
    let [eax, ebx, ecx, edx] = registers;
    let flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
    kvm_cpuid_entry2 { function: leaf, index, flags, eax, ebx, ecx, edx, ..Default::default() }
}

/// An entry without subleaves.
fn leaf(leaf: u32, registers: [u32; 4]) -> kvm_cpuid_entry2 {
    kvm_cpuid_entry2 { flags: 0, ..subleaf(leaf, 0, registers) }
}

/// Sets the feature bits of a machine without PMU, nesting or power management.
fn features(table: &mut [kvm_cpuid_entry2], spec: &CpuidSpec) {
    // Leaf 1, ECX.
    const MONITOR: u32 = 1 << 3;
    const VMX: u32 = 1 << 5;
    const PDCM: u32 = 1 << 15;
    const TSC_DEADLINE: u32 = 1 << 24;
    const HYPERVISOR: u32 = 1 << 31;
    // Leaf 0x8000_0001, ECX.
    const SVM: u32 = 1 << 2;
    const PERFCTR_CORE: u32 = 1 << 23;
    const PERFCTR_NB: u32 = 1 << 24;
    const PERFCTR_LLC: u32 = 1 << 28;
    const MWAITX: u32 = 1 << 29;

    if let Some(entry) = find(table, 1) {
        entry.ecx &= !(MONITOR | VMX | PDCM | TSC_DEADLINE);
        entry.ecx |= HYPERVISOR;
        if spec.tsc_deadline {
            entry.ecx |= TSC_DEADLINE;
        }
    }
    if let Some(entry) = find(table, 0x8000_0001) {
        entry.ecx &= !(SVM | PERFCTR_CORE | PERFCTR_NB | PERFCTR_LLC | MWAITX);
    }
    // No MONITOR/MWAIT, Intel PMU, SVM or AMD PMU.
    for absent in [0x5, 0xa, 0x8000_000a, 0x8000_0022] {
        for entry in table.iter_mut().filter(|entry| entry.function == absent) {
            (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0);
        }
    }
}

/// Sets KVM's own features. Stock kernels use PV queued spinlocks if bit 7 offers the kick;
/// without it they use test-and-set in any case. The bit is therefore set for every backend, and
/// `nopvspin` turns PV off; it is clear only where HLT exits or test-and-set is wanted.
fn kvm_leaves(table: &mut [kvm_cpuid_entry2], spec: &CpuidSpec) {
    const FEATURES: u32 = 0x4000_0001;
    const STEAL_TIME: u32 = 1 << 5;
    const PV_UNHALT: u32 = 1 << 7;
    /// Its flag in the steal-time record asks KVM for a flush at the next entry, which user space cannot do.
    const PV_TLB_FLUSH: u32 = 1 << 9;
    /// "vCPUs are never preempted": makes Linux disable PV spinlocks.
    const HINTS_REALTIME: u32 = 1 << 0;
    if let Some(entry) = find(table, FEATURES) {
        entry.eax &= !PV_UNHALT;
        match spec.steal {
            StealSource::Kvm => {}
            StealSource::Schedule => entry.eax = entry.eax & !PV_TLB_FLUSH | STEAL_TIME,
            StealSource::Off => entry.eax &= !(PV_TLB_FLUSH | STEAL_TIME),
        }
        if spec.kvm_kick && spec.halts_in_kvm {
            entry.eax |= PV_UNHALT;
        }
        entry.edx &= !HINTS_REALTIME;
    }
}

/// Adds the contract's own leaves next to KVM's.
fn contract_leaves(table: &mut Vec<kvm_cpuid_entry2>, spec: &CpuidSpec) {
    let [ebx, ecx, edx] = hypercalls::cpuid::signature_registers();
    let locks = if spec.lock_hypercalls { FEATURE_LOCK_HYPERCALLS } else { 0 };
    let doorbell = if spec.doorbell && spec.halts_in_kvm { FEATURE_DOORBELL } else { 0 };
    let base_port = u32::from(ports::DEFAULT_BASE);
    table.retain(|entry| entry.function != LEAF_BASE && entry.function != LEAF_FEATURES);
    table.push(leaf(LEAF_BASE, [LEAF_FEATURES, ebx, ecx, edx]));
    let (telemetry, frame) = if spec.telemetry {
        let frame = (layout::TELEMETRY.0 / layout::PAGE_SIZE) as u32;
        (FEATURE_TELEMETRY | FEATURE_MACHINE_WORDS | FEATURE_SLICE_END, frame)
    } else {
        (0, 0)
    };
    let always =
        FEATURE_CONSOLE | FEATURE_OUTPUT_PAGE | FEATURE_WINDOW | FEATURE_PANIC | FEATURE_YIELD_TO;
    let features = always | locks | doorbell | telemetry;
    table.push(leaf(LEAF_FEATURES, [features, base_port, frame, ABI_VERSION]));
}

#[cfg(test)]
#[path = "cpuid_tests.rs"]
mod tests;
