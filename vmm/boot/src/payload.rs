//! Loading a payload. Every vCPU enters it directly, at CPL 3 or, to execute HLT, at CPL 0.

use std::io::Cursor;

use hypercalls::payload::{IMAGE_GPA, MEMORY, SHARED_GPA, STACK_SIZE, STACKS_GPA};
use kvm_bindings::{kvm_regs, kvm_sregs};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap, bitmap::Bitmap};

use super::elf::{self, ImageKind};
use super::error::BootError;
use super::image::Image;
use super::layout;
use super::paging::{self, MappingAccess};
use super::segments::Ring;
use base::units::{Gpa, VcpuId};

/// RFLAGS at entry: the bit that is always set, and IOPL 3. Ports are permitted twice, by IOPL and
/// by the TSS's bitmap, because some hosts support only one: a software KVM clears IOPL at the first
/// entry (measured), and the CPU emulated by QEMU ignores the bitmap of a TSS of type "busy", the
/// only type that VM entry accepts (`check_io` in its seg_helper.c).
const RFLAGS: u64 = 0x3002;

/// Offset in a TSS of the bitmap's offset (SDM volume 3, figure 8-11).
const TSS_BITMAP_OFFSET: u64 = 102;
/// Offset of the bitmap: after the 64-bit TSS itself.
const TSS_BITMAP: u16 = 104;
/// Limit with one bit for each of the 65536 ports, and the mandatory trailing byte of ones (SDM
/// volume 1, 19.5.2).
const TSS_LIMIT: u32 = TSS_BITMAP as u32 + 65536 / 8;

const CR4_OSFXSR: u64 = 1 << 9;
const CR4_OSXMMEXCPT: u64 = 1 << 10;

/// Loads a payload's ELF image and writes page tables, GDT and TSS. Returns the entry point.
///
/// The image must be between [`IMAGE_GPA`] and [`STACKS_GPA`]. Only the payload's [`MEMORY`] is
/// mapped, so a stray access ends the machine.
pub fn load_payload(
    memory: &GuestMemoryMmap<impl Bitmap>,
    elf_bytes: &[u8],
    ring: Ring,
) -> Result<Gpa, BootError> {
    let room = Gpa(IMAGE_GPA)..Gpa(STACKS_GPA);
    let mut reader = Cursor::new(elf_bytes);
    let loaded = Image::new(&mut reader)
        .and_then(|mut image| elf::load(&mut image, memory, room, ImageKind::Payload))
        .map_err(BootError::Payload)?;
    paging::write(memory, Gpa(MEMORY), MappingAccess::User)?;
    ring.write_gdt(memory)?;
    write_tss(memory)?;
    Ok(loaded.entry)
}

/// Writes a TSS that permits every port. Fresh memory already contains the bitmap's zeros.
fn write_tss(memory: &GuestMemoryMmap<impl Bitmap>) -> Result<(), GuestMemoryError> {
    let at = |offset: u64| GuestAddress(layout::PAYLOAD_TSS.0 + offset);
    memory.write_obj(TSS_BITMAP, at(TSS_BITMAP_OFFSET))?;
    memory.write_obj(0xff_u8, at(TSS_LIMIT.into()))
}

/// Returns a vCPU's general registers at the payload's entry, as for a C function called with the
/// index and the address of the shared block. Sets up `sregs`, which must come from a fresh vCPU.
pub fn payload_registers(sregs: &mut kvm_sregs, vcpu: VcpuId, entry: Gpa, ring: Ring) -> kvm_regs {
    ring.set(sregs);
    paging::set_long_mode(sregs);
    sregs.tr.base = layout::PAYLOAD_TSS.0;
    sregs.tr.limit = TSS_LIMIT;
    sregs.cr4 |= CR4_OSFXSR | CR4_OSXMMEXCPT;
    let stack_top = STACKS_GPA + (u64::from(vcpu.0) + 1) * STACK_SIZE;
    kvm_regs {
        rip: entry.0,
        rdi: u64::from(vcpu.0),
        rsi: SHARED_GPA,
        // At a function's entry RSP + 8 is a multiple of 16 (System V ABI, 3.2.2).
        rsp: stack_top - 8,
        rflags: RFLAGS,
        ..Default::default()
    }
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
