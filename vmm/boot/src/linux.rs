//! Loading a Linux guest: its memory, and the boot CPU's registers.

use std::io::Seek;
use std::ops::Range;

use kvm_bindings::{kvm_regs, kvm_sregs};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, ReadVolatile, bitmap::Bitmap};

use super::error::{BootError, ImageError};
use super::image::Image;
use super::initrd::{self, InitrdPart};
use super::kind::{self, FileKind};
use super::paging::{self, MappingAccess};
use super::segments::Ring;
use super::{acpi, bzimage, elf, layout, memory, zero_page};
use base::units::{Gpa, VcpuCount};

/// RFLAGS at entry: only the bit that is always set. Interrupts are off.
const RFLAGS: u64 = 0x2;

/// Code at the reset vector, in real mode: `mov al, 0xfe; out 0x64, al`, a reset by the keyboard controller,
/// then `hlt` and a `jmp` back to it.
const RESET: [u8; 7] = [0xb0, 0xfe, 0xe6, 0x64, 0xf4, 0xeb, 0xfd];

/// The format of a kernel file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelFormat {
    /// Uncompressed ELF.
    Vmlinux,
    /// Compressed, with a setup header.
    BzImage,
}

/// Locations in a loaded guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinuxEntry {
    /// Format of the kernel file.
    pub format: KernelFormat,
    /// First instruction of the boot CPU. INIT and SIPI start the other CPUs.
    pub entry: Gpa,
    /// First address that the kernel does not need before it manages memory itself.
    pub kernel_end: Gpa,
    /// The initrd, if any.
    pub initrd: Option<Range<Gpa>>,
}

/// Loads a kernel (ELF `vmlinux` or bzImage, recognised by its contents), initrd and command line, and writes
/// the zero page, page tables, GDT and ACPI tables.
///
/// `memory` must be fresh: zero bytes are not written.
pub fn load_linux(
    memory: &GuestMemoryMmap<impl Bitmap>,
    kernel: &mut (impl ReadVolatile + Seek),
    initrd: &mut [InitrdPart<'_>],
    cmdline: &str,
    vcpus: VcpuCount,
) -> Result<LinuxEntry, BootError> {
    let ram_end = memory::low_end(memory);
    let kernel = load_kernel(memory, kernel, ram_end).map_err(BootError::Kernel)?;
    zero_page::write_cmdline(memory, cmdline, &kernel.header)?;

    // A bzImage states the last address for its initrd. An ELF file does not.
    let initrd_end = match kernel.header.initrd_addr_max {
        0 => ram_end,
        max => ram_end.min(Gpa(u64::from(max) + 1)),
    };
    let initrd = initrd::load(initrd, memory, kernel.end..initrd_end)?;

    zero_page::write(memory, kernel.header, initrd.clone())?;
    paging::write(memory, kernel.end, MappingAccess::Kernel)?;
    Ring::Kernel.write_gdt(memory)?;
    acpi::write(memory, vcpus)?;
    memory.write_slice(&RESET, GuestAddress(layout::RESET_VECTOR.0))?;
    Ok(LinuxEntry { format: kernel.format, entry: kernel.entry, kernel_end: kernel.end, initrd })
}

/// Returns the boot CPU's general registers at the kernel's 64-bit entry. Sets up `sregs`, which must come
/// from a fresh vCPU.
pub fn linux_registers(sregs: &mut kvm_sregs, entry: &LinuxEntry) -> kvm_regs {
    Ring::Kernel.set(sregs);
    paging::set_long_mode(sregs);
    kvm_regs {
        rip: entry.entry.0,
        rsi: layout::BOOT_PARAMS.0,
        rsp: layout::BOOT_STACK_TOP.0,
        rflags: RFLAGS,
        ..Default::default()
    }
}

struct Kernel {
    format: KernelFormat,
    entry: Gpa,
    end: Gpa,
    header: linux_loader::bootparam::setup_header,
}

fn load_kernel(
    memory: &GuestMemoryMmap<impl Bitmap>,
    file: &mut (impl ReadVolatile + Seek),
    ram_end: Gpa,
) -> Result<Kernel, ImageError> {
    let mut image = Image::new(file)?;
    let mut magic = [0; 4];
    if image.len() >= magic.len() as u64 {
        image.read(0, &mut magic)?;
    }
    if magic == elf::MAGIC {
        let room = layout::HIGH_RAM..ram_end;
        let loaded = elf::load(&mut image, memory, room, elf::ImageKind::Kernel)?;
        let format = KernelFormat::Vmlinux;
        let header = zero_page::elf_header();
        Ok(Kernel { format, entry: loaded.entry, end: loaded.end, header })
    } else if bzimage::is_bzimage(&mut image)? {
        let loaded = bzimage::load(&mut image, memory, ram_end)?;
        let format = KernelFormat::BzImage;
        Ok(Kernel { format, entry: loaded.entry, end: loaded.end, header: loaded.header })
    } else {
        Err(unrecognised(&mut image)?)
    }
}

/// Returns the error for a file with neither magic number; fails if it cannot be read.
fn unrecognised(image: &mut Image<'_, impl ReadVolatile + Seek>) -> Result<ImageError, ImageError> {
    let mut head = vec![0; image.len().min(kind::HEAD as u64) as usize];
    image.read(0, &mut head)?;
    Ok(match FileKind::detect(&head) {
        // A bzImage is also a UEFI program.
        Some(FileKind::Efi) if image.len() < bzimage::MIN_SIZE => ImageError::Truncated,
        Some(kind) => ImageError::OtherKind(kind),
        // The kernel's banner (init/version.c).
        None if image.contains(b"Linux version ")? => ImageError::Raw,
        None => ImageError::Unrecognised,
    })
}

#[cfg(test)]
#[path = "linux_tests.rs"]
mod tests;
