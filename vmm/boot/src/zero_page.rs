//! The zero page (`struct boot_params`) and the command line.

use std::ops::Range;

use linux_loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, bitmap::Bitmap};

use super::error::BootError;
use super::{layout, memory};
use base::units::Gpa;

/// Boot loader type "undefined": a loader without an assigned number.
const LOADER_UNDEFINED: u8 = 0xff;
/// `loadflags`: the kernel lies at or above 1 MiB.
const LOADED_HIGH: u8 = 1 << 0;
/// Command line limit in bytes if the header has no limit: COMMAND_LINE_SIZE minus the NUL.
const DEFAULT_CMDLINE_SIZE: u32 = 2047;

/// Returns the setup header for a kernel without a header (ELF).
pub(super) fn elf_header() -> setup_header {
    setup_header {
        boot_flag: 0xaa55,
        header: 0x5372_6448,
        version: 0x020f,
        cmdline_size: DEFAULT_CMDLINE_SIZE,
        ..Default::default()
    }
}

/// Writes the command line after checking it against the kernel's limit.
pub(super) fn write_cmdline(
    memory: &GuestMemoryMmap<impl Bitmap>,
    cmdline: &str,
    header: &setup_header,
) -> Result<(), BootError> {
    let limit = match header.cmdline_size {
        0 => u64::from(DEFAULT_CMDLINE_SIZE),
        size => u64::from(size).min(layout::CMDLINE_SPACE - 1),
    };
    if cmdline.len() as u64 > limit {
        return Err(BootError::CmdlineTooLong { length: cmdline.len(), limit: limit as usize });
    }
    if cmdline.contains('\0') {
        return Err(BootError::CmdlineNul);
    }
    memory.write_slice(cmdline.as_bytes(), GuestAddress(layout::CMDLINE.0))?;
    let end = layout::CMDLINE.0 + cmdline.len() as u64;
    Ok(memory.write_slice(&[0], GuestAddress(end))?)
}

pub(super) fn write(
    guest: &GuestMemoryMmap<impl Bitmap>,
    header: setup_header,
    initrd: Option<Range<Gpa>>,
) -> Result<(), BootError> {
    let mut page = boot_params { hdr: header, ..Default::default() };
    page.hdr.type_of_loader = LOADER_UNDEFINED;
    page.hdr.loadflags |= LOADED_HIGH;
    // All our data is below 4 GiB, so the upper halves stay zero.
    page.hdr.cmd_line_ptr = layout::CMDLINE.0 as u32;
    page.acpi_rsdp_addr = layout::ACPI.0;
    if let Some(Range { start, end }) = initrd {
        page.hdr.ramdisk_image = start.0 as u32;
        page.hdr.ramdisk_size = (end.0 - start.0) as u32;
    }
    let mut entries = 0;
    for (slot, range) in page.e820_table.iter_mut().zip(memory::e820(guest)) {
        let (addr, size) = (range.start.0, range.end.0 - range.start.0);
        *slot = boot_e820_entry { addr, size, r#type: range.kind as u32 };
        entries += 1;
    }
    page.e820_entries = entries;
    Ok(guest.write_obj(page, GuestAddress(layout::BOOT_PARAMS.0))?)
}
