//! The local interrupt pins of a local APIC, as set by firmware.

use kvm_bindings::kvm_lapic_state;

/// Register offsets in the APIC page (SDM 10.4.1).
const SPURIOUS: usize = 0xf0;
const LVT_LINT0: usize = 0x350;
const LVT_LINT1: usize = 0x360;

/// Local vector table: delivery mode in bits 8 to 10, mask in bit 16.
const DELIVER_NMI: u32 = 4 << 8;
const DELIVER_EXTINT: u32 = 7 << 8;
const MASKED: u32 = 1 << 16;

/// Connects LINT0 to the 8259's output, but masked, and LINT1 to NMI.
///
/// Our ACPI tables declare the machine hardware-reduced, so Linux never programs KVM's 8259, which
/// would deliver an interrupt on COM1's line as vector 4, the overflow exception. Linux keeps
/// LINT0 unmasked on the boot CPU if firmware left it so, hence the mask. A kernel that uses the
/// 8259 (`acpi=off`) unmasks LINT0 itself.
pub fn set_local_pins(apic: &mut kvm_lapic_state) {
    write(apic, LVT_LINT0, DELIVER_EXTINT | MASKED);
    write(apic, LVT_LINT1, DELIVER_NMI);
}

/// Enables the APIC in software (SDM 10.9), like a guest's kernel: KVM delivers no MSI to an APIC
/// that was never enabled.
pub fn enable(apic: &mut kvm_lapic_state) {
    const ENABLED: u32 = 1 << 8;
    const VECTOR: u32 = 0xff;
    write(apic, SPURIOUS, ENABLED | VECTOR);
}

fn write(apic: &mut kvm_lapic_state, offset: usize, value: u32) {
    for (register, byte) in apic.regs[offset..offset + 4].iter_mut().zip(value.to_le_bytes()) {
        *register = byte as _;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_pins_change() {
        let mut apic = kvm_lapic_state { regs: [0x55; 1024] };
        set_local_pins(&mut apic);
        let word = |at: usize| -> [u8; 4] { std::array::from_fn(|i| apic.regs[at + i] as u8) };
        assert_eq!(u32::from_le_bytes(word(LVT_LINT0)), 0x1_0700);
        assert_eq!(u32::from_le_bytes(word(LVT_LINT1)), 0x400);
        assert_eq!(apic.regs.iter().filter(|r| **r != 0x55).count(), 8);
    }
}
