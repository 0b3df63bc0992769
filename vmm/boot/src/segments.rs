//! Segment descriptors, in the formats of the GDT and of KVM's registers.

use kvm_bindings::{kvm_dtable, kvm_segment, kvm_sregs};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap, bitmap::Bitmap};

use super::layout;

/// Flat 64-bit code: type "execute, read, accessed".
const CODE: u8 = 0xb;
/// Flat data: type "read, write, accessed".
const DATA: u8 = 0x3;
/// 64-bit TSS, busy: the only type that VM entry accepts for TR (SDM 26.3.1.2).
const TSS_BUSY: u8 = 0xb;

/// The privilege level of a set of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// Linux's entry: code 0x10, data 0x18 (boot.rst, 64-bit boot protocol). Also for payloads that
    /// execute HLT.
    Kernel,
    /// A ring-3 payload: code 0x23, data 0x1b.
    User,
}

impl Ring {
    fn level(self) -> u8 {
        match self {
            Self::Kernel => 0,
            Self::User => 3,
        }
    }

    fn code(self) -> kvm_segment {
        let selector = match self {
            Self::Kernel => 0x10,
            Self::User => 0x23,
        };
        kvm_segment { type_: CODE, l: 1, ..flat(selector, self.level()) }
    }

    fn data(self) -> kvm_segment {
        let selector = match self {
            Self::Kernel => 0x18,
            Self::User => 0x1b,
        };
        kvm_segment { type_: DATA, db: 1, ..flat(selector, self.level()) }
    }

    /// Null descriptors, and the two segments at the indices of their selectors.
    fn gdt(self) -> [u64; 5] {
        let mut gdt = [0; 5];
        for segment in [self.code(), self.data()] {
            gdt[usize::from(segment.selector / 8)] = descriptor(&segment);
        }
        gdt
    }

    /// Writes the GDT.
    pub fn write_gdt(self, memory: &GuestMemoryMmap<impl Bitmap>) -> Result<(), GuestMemoryError> {
        memory.write_obj(self.gdt(), GuestAddress(layout::GDT.0))
    }

    /// Points the segment registers at the GDT. There is no IDT: a fault before the guest has set
    /// up an IDT is a triple fault and ends the machine.
    pub fn set(self, sregs: &mut kvm_sregs) {
        sregs.cs = self.code();
        for register in [&mut sregs.ds, &mut sregs.es, &mut sregs.fs, &mut sregs.gs, &mut sregs.ss]
        {
            *register = self.data();
        }
        sregs.tr = kvm_segment { type_: TSS_BUSY, present: 1, limit: 0x67, ..Default::default() };
        sregs.ldt = kvm_segment { type_: 2, unusable: 1, ..Default::default() };
        sregs.gdt = kvm_dtable {
            base: layout::GDT.0,
            limit: (size_of_val(&self.gdt()) - 1) as u16,
            ..Default::default()
        };
        sregs.idt = kvm_dtable::default();
    }
}

/// A present code or data segment that covers all addresses.
fn flat(selector: u16, dpl: u8) -> kvm_segment {
    kvm_segment { limit: u32::MAX, selector, present: 1, dpl, s: 1, g: 1, ..Default::default() }
}

/// Encodes the segment as a descriptor (SDM 3.4.5): base 0, limit in pages.
fn descriptor(segment: &kvm_segment) -> u64 {
    let bit = |value: u8, shift: u32| u64::from(value) << shift;
    let limit = u64::from(segment.limit >> 12);
    (limit & 0xffff)
        | bit(segment.type_, 40)
        | bit(segment.s, 44)
        | bit(segment.dpl, 45)
        | bit(segment.present, 47)
        | (limit >> 16) << 48
        | bit(segment.l, 53)
        | bit(segment.db, 54)
        | bit(segment.g, 55)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_the_flat_ones_of_the_manual() {
        assert_eq!(Ring::Kernel.gdt(), [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0]);
        assert_eq!(Ring::User.gdt(), [0, 0, 0, 0x00cf_f300_0000_ffff, 0x00af_fb00_0000_ffff]);
    }

    #[test]
    fn selectors_carry_their_privilege() {
        let mut sregs = kvm_sregs::default();
        Ring::User.set(&mut sregs);
        assert_eq!((sregs.cs.selector, sregs.ss.selector), (0x23, 0x1b));
        assert_eq!((sregs.cs.dpl, sregs.ss.dpl), (3, 3));
        assert_eq!((sregs.tr.type_, sregs.tr.present, sregs.tr.s), (0xb, 1, 0));
        Ring::Kernel.set(&mut sregs);
        assert_eq!((sregs.cs.selector, sregs.ss.selector), (0x10, 0x18));
        assert_eq!((sregs.cs.l, sregs.cs.db), (1, 0));
    }
}
