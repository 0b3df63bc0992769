//! CPU topology in CPUID: one socket, N cores, one thread per core, APIC id = index.

use kvm_bindings::kvm_cpuid_entry2;

use super::cpuid::{find, subleaf};
use base::units::{VcpuCount, VcpuId};

/// Writes the topology of `vcpu`, one of `vcpus`, into its table.
pub(super) fn set(table: &mut Vec<kvm_cpuid_entry2>, vcpus: VcpuCount, vcpu: VcpuId) {
    legacy(table, vcpus, vcpu);
    caches(table, vcpus);
    extended(table, vcpus, vcpu);
    if is_amd(table) {
        amd(table, vcpus, vcpu);
    }
}

/// Number of APIC id bits for the cores.
fn id_bits(vcpus: VcpuCount) -> u32 {
    vcpus.get().next_power_of_two().trailing_zeros()
}

/// Leaf 1: initial APIC id and the number of logical processors.
fn legacy(table: &mut [kvm_cpuid_entry2], vcpus: VcpuCount, vcpu: VcpuId) {
    const HTT: u32 = 1 << 28;
    if let Some(entry) = find(table, 1) {
        entry.ebx = entry.ebx & 0xffff | vcpus.get() << 16 | vcpu.0 << 24;
        entry.edx &= !HTT;
        if vcpus.get() > 1 {
            entry.edx |= HTT;
        }
    }
}

/// Leaf 4 (Intel) and 0x8000_001D (AMD): the cores that share a cache. The first two levels are
/// private to a core, the others shared by the socket.
fn caches(table: &mut [kvm_cpuid_entry2], vcpus: VcpuCount) {
    const NO_MORE: u32 = 0;
    let socket = vcpus.get().next_power_of_two() - 1;
    let intel_or_amd = |entry: &&mut kvm_cpuid_entry2| matches!(entry.function, 4 | 0x8000_001d);
    for entry in table.iter_mut().filter(intel_or_amd) {
        if entry.eax & 0x1f == NO_MORE {
            continue;
        }
        let level = entry.eax >> 5 & 7;
        let sharing = if level <= 2 { 0 } else { socket };
        // Bits 14 to 25: sharers' addressable ids minus one. Bits 26 to 31, Intel only: socket's
        // core ids minus one, six bits. Leaf 0xB has larger numbers.
        let cores = if entry.function == 4 { socket.min(63) } else { 0 };
        entry.eax = entry.eax & 0x3fff | sharing << 14 | cores << 26;
    }
}

/// Leaves 0xB and 0x1F: a thread level of one thread, then a core level of all cores. 0xB is
/// added if the host's CPUs (older AMD) lack it, 0x1F only if the leaves extend to it.
fn extended(table: &mut Vec<kvm_cpuid_entry2>, vcpus: VcpuCount, vcpu: VcpuId) {
    const LEVEL_THREAD: u32 = 1 << 8;
    const LEVEL_CORE: u32 = 2 << 8;
    table.retain(|entry| !matches!(entry.function, 0xb | 0x1f));
    let Some(max_leaf) = find(table, 0) else { return };
    max_leaf.eax = max_leaf.eax.max(0xb);
    let leaves: &[u32] = if max_leaf.eax >= 0x1f { &[0xb, 0x1f] } else { &[0xb] };
    for leaf in leaves {
        table.push(subleaf(*leaf, 0, [0, 1, LEVEL_THREAD, vcpu.0]));
        table.push(subleaf(*leaf, 1, [id_bits(vcpus), vcpus.get(), 1 | LEVEL_CORE, vcpu.0]));
        table.push(subleaf(*leaf, 2, [0, 0, 2, vcpu.0]));
    }
}

/// AMD's own leaves (APM volume 3, appendix E.4).
fn amd(table: &mut [kvm_cpuid_entry2], vcpus: VcpuCount, vcpu: VcpuId) {
    /// The logical processors of leaf 1 are cores, not threads.
    const CMP_LEGACY: u32 = 1 << 1;
    if let Some(entry) = find(table, 0x8000_0001) {
        entry.ecx &= !CMP_LEGACY;
        if vcpus.get() > 1 {
            entry.ecx |= CMP_LEGACY;
        }
    }
    if let Some(entry) = find(table, 0x8000_0008) {
        // Bits 0 to 7: cores minus one; 12 to 15: width of their ids.
        entry.ecx = entry.ecx & !0xf0ff | (vcpus.get() - 1) | id_bits(vcpus) << 12;
    }
    if let Some(entry) = find(table, 0x8000_001e) {
        // Extended APIC id; core id with one thread; node 0 of one.
        (entry.eax, entry.ebx, entry.ecx) = (vcpu.0, vcpu.0, 0);
    }
}

fn is_amd(table: &mut [kvm_cpuid_entry2]) -> bool {
    let vendor = |text: &[u8]| text.try_into().map(u32::from_le_bytes).unwrap_or_default();
    let amd_like = [b"AuthenticAMD", b"HygonGenuine"]
        .map(|name| (vendor(&name[..4]), vendor(&name[8..]), vendor(&name[4..8])));
    find(table, 0).is_some_and(|entry| amd_like.contains(&(entry.ebx, entry.ecx, entry.edx)))
}
