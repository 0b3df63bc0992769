//! bzImage kernels (Documentation/arch/x86/boot.rst), entered at the 64-bit
//! entry point of boot protocol 2.12.

use std::io::Seek;

use linux_loader::bootparam::setup_header;
use vm_memory::{ByteValued, GuestMemoryMmap, ReadVolatile, bitmap::Bitmap};

use super::error::ImageError;
use super::image::Image;
use super::layout;
use base::units::Gpa;

/// Offset of the setup header in the file, and in the zero page.
const HEADER_OFFSET: u64 = 0x1f1;
/// Offset of the byte that gives the header's end: the displacement of a short jump at 0x200.
const HEADER_END_BYTE: u64 = 0x201;
const HEADER_END_BASE: usize = 0x202;
/// "HdrS".
const MAGIC: u32 = 0x5372_6448;
const MAGIC_OFFSET: u64 = 0x202;
/// Length of a file up to the end of the magic number, in bytes.
pub(super) const MIN_SIZE: u64 = MAGIC_OFFSET + 4;
/// The first protocol version with `xloadflags`.
const PROTOCOL: u16 = 0x020c;
/// `xloadflags`: there is a 64-bit entry point at 0x200.
const XLF_KERNEL_64: u16 = 1 << 0;
const ENTRY_64: u64 = 0x200;
const SECTOR: u64 = 512;

/// A loaded bzImage.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadedKernel {
    /// The 64-bit entry point.
    pub entry: Gpa,
    /// First address that the kernel does not use before it knows its memory. The kernel
    /// decompresses in place, over `init_size` bytes.
    pub end: Gpa,
    /// The setup header, for the zero page.
    pub header: setup_header,
}

/// Whether the file is a bzImage. False for files too short to contain the magic number.
pub(super) fn is_bzimage<R: ReadVolatile + Seek>(
    image: &mut Image<'_, R>,
) -> Result<bool, ImageError> {
    if image.len() < MIN_SIZE {
        return Ok(false);
    }
    Ok(image.read_struct::<u32>(MAGIC_OFFSET)? == MAGIC)
}

/// Loads the kernel at its preferred address, aligned if relocatable.
///
/// A relocatable kernel loaded below `pref_address` moves up to it; at or above it, it stays.
/// `pref_address` therefore suits all kernels. The boot data is below 1 MiB, and the caller puts the initrd
/// above `end`.
pub(super) fn load<R: ReadVolatile + Seek>(
    image: &mut Image<'_, R>,
    memory: &GuestMemoryMmap<impl Bitmap>,
    ram_end: Gpa,
) -> Result<LoadedKernel, ImageError> {
    let header = read_header(image)?;
    let start = load_address(&header)?;
    let setup_sectors = match header.setup_sects {
        0 => 4,
        sectors => u64::from(sectors),
    };
    let setup_size = (setup_sectors + 1) * SECTOR;
    let code_size = u64::from(header.syssize) * 16;
    // `syssize` counts 16-byte paragraphs. The last may be incomplete in the file.
    let in_file = image.len().saturating_sub(setup_size);
    if code_size == 0 || in_file + 15 < code_size {
        return Err(ImageError::Truncated);
    }
    let code_size = code_size.min(in_file);
    // Both sizes are below 2^37; the address is arbitrary.
    let in_use = u64::from(header.init_size).max(code_size);
    let end = start.0.checked_add(in_use).ok_or(ImageError::Malformed("address wraps around"))?;
    if end > ram_end.0 {
        return Err(ImageError::too_large(end, ram_end));
    }
    image.load(setup_size, code_size, memory, start)?;
    Ok(LoadedKernel { entry: Gpa(start.0 + ENTRY_64), end: Gpa(end), header })
}

fn read_header<R: ReadVolatile + Seek>(
    image: &mut Image<'_, R>,
) -> Result<setup_header, ImageError> {
    let mut header: setup_header = image.read_struct(HEADER_OFFSET)?;
    if header.version < PROTOCOL {
        return Err(ImageError::OldProtocol(header.version));
    }
    if header.xloadflags & XLF_KERNEL_64 == 0 {
        return Err(ImageError::Only32Bit);
    }
    // The bytes after the header in the file are code.
    let end: u8 = image.read_struct(HEADER_END_BYTE)?;
    let length = HEADER_END_BASE + usize::from(end) - HEADER_OFFSET as usize;
    if let Some(tail) = header.as_mut_slice().get_mut(length..) {
        tail.fill(0);
    }
    Ok(header)
}

fn load_address(header: &setup_header) -> Result<Gpa, ImageError> {
    let preferred = header.pref_address;
    if preferred < layout::HIGH_RAM.0 {
        return Err(ImageError::TooLow(layout::HIGH_RAM.0));
    }
    if header.relocatable_kernel == 0 {
        return Ok(Gpa(preferred));
    }
    let alignment = u64::from(header.kernel_alignment);
    if !alignment.is_power_of_two() {
        return Err(ImageError::Malformed("alignment is not a power of two"));
    }
    let aligned = preferred.checked_next_multiple_of(alignment);
    aligned.map(Gpa).ok_or(ImageError::Malformed("address wraps around"))
}
