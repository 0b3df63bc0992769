//! Model-specific registers that a guest expects firmware to have set.

use kvm_bindings::kvm_msr_entry;

/// IA32_MISC_ENABLE (SDM volume 4).
const MISC_ENABLE: u32 = 0x1a0;
/// Fast string operations: without them Linux uses slower copy loops on Intel.
const FAST_STRINGS: u64 = 1 << 0;

/// IA32_MTRR_DEF_TYPE (SDM 11.11.2.1).
const MTRR_DEF_TYPE: u32 = 0x2ff;
/// MTRRs on, write-back by default. With MTRRs off Linux considers the firmware broken and also
/// turns off its page attribute table.
const MTRR_ENABLE: u64 = 1 << 11;
const WRITE_BACK: u64 = 6;

/// Returns the argument of `KVM_SET_MSRS` for every vCPU of a Linux guest, after its CPUID.
///
/// SYSENTER, STAR, LSTAR, KERNEL_GS_BASE and the time stamp counter are zero after a reset, and in a
/// vCPU created by KVM. KVM also keeps the vCPUs' counters synchronized; writing them one by one
/// would undo this.
pub fn boot_msrs() -> [kvm_msr_entry; 2] {
    [(MISC_ENABLE, FAST_STRINGS), (MTRR_DEF_TYPE, MTRR_ENABLE | WRITE_BACK)]
        .map(|(index, data)| kvm_msr_entry { index, data, ..Default::default() })
}
