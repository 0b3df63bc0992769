//! A ring-3 payload: every vCPU enters it directly at CPL 3.

use std::io::Cursor;

use hypercalls::payload::{IMAGE_GPA, MEMORY, SHARED_GPA, STACK_SIZE, STACKS_GPA};
use kvm_bindings::{kvm_regs, kvm_sregs};
use vm_memory::GuestMemoryMmap;

use super::elf::{self, Purpose};
use super::error::BootError;
use super::image::Image;
use super::paging::{self, Access};
use super::segments::Ring;
use crate::units::{Gpa, VcpuId};

/// IOPL 3, so that ring 3 may use ports without a TSS bitmap, and the bit that
/// is always set.
const RFLAGS: u64 = 0x3002;

const CR4_OSFXSR: u64 = 1 << 9;
const CR4_OSXMMEXCPT: u64 = 1 << 10;

/// Loads a payload's ELF image and writes page tables and GDT. Gives the entry.
///
/// The image must lie between [`IMAGE_GPA`] and [`STACKS_GPA`]. Only the payload's
/// [`MEMORY`] is mapped, so that a stray access ends the machine.
pub fn load_payload(memory: &GuestMemoryMmap, elf_bytes: &[u8]) -> Result<Gpa, BootError> {
    let room = Gpa(IMAGE_GPA)..Gpa(STACKS_GPA);
    let mut reader = Cursor::new(elf_bytes);
    let loaded = Image::new(&mut reader)
        .and_then(|mut image| elf::load(&mut image, memory, room, Purpose::Payload))
        .map_err(BootError::Payload)?;
    paging::write(memory, Gpa(MEMORY), Access::User)?;
    Ring::User.write_gdt(memory)?;
    Ok(loaded.entry)
}

/// Registers of one vCPU at the payload's entry, as of a C function called with
/// the vCPU's index and the address of the shared block. `sregs` is what KVM gave for the
/// fresh vCPU and what it gets back. vCPUs other than the first also need
/// `KVM_MP_STATE_RUNNABLE`.
pub fn payload_registers(sregs: &mut kvm_sregs, vcpu: VcpuId, entry: Gpa) -> kvm_regs {
    Ring::User.set(sregs);
    paging::set_long_mode(sregs);
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
