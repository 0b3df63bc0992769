//! ELF images: a kernel's `vmlinux`, or a ring-3 payload.

use std::io::Seek;
use std::ops::Range;

use linux_loader::elf::{ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, EM_X86_64, ET_EXEC, PT_LOAD};
use linux_loader::elf::{Elf64_Ehdr, Elf64_Phdr};
use vm_memory::{GuestMemoryMmap, ReadVolatile, bitmap::Bitmap};

use super::error::ImageError;
use super::image::Image;
use base::units::Gpa;

/// The first four bytes of every ELF file.
pub(super) const MAGIC: [u8; 4] = [ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3];

/// `e_ident`: 64-bit, little-endian.
const CLASS_64: u8 = 2;
const DATA_LITTLE_ENDIAN: u8 = 1;

/// More program headers than any linker writes. Limits the cost of a bad file.
const MAX_SEGMENTS: u16 = 64;

/// Kernels are linked to the upper half of the address space, programs to the lower half.
const KERNEL_HALF: u64 = 1 << 63;

/// The intended use of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageKind {
    /// A Linux kernel, linked to the upper half.
    Kernel,
    /// A payload, which runs at its link address.
    Payload,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadedImage {
    pub entry: Gpa,
    pub end: Gpa,
}

/// Loads every segment at its physical address, which must be in `room`.
///
/// The part of a segment that is not in the file is not written: guest memory starts zeroed, and
/// touching it would allocate pages.
pub(super) fn load<R: ReadVolatile + Seek>(
    image: &mut Image<'_, R>,
    memory: &GuestMemoryMmap<impl Bitmap>,
    room: Range<Gpa>,
    purpose: ImageKind,
) -> Result<LoadedImage, ImageError> {
    let segments = segments(image)?;
    let header: Elf64_Ehdr = image.read_struct(0)?;
    let entry = header.e_entry;
    let is_entry = |s: &Segment| s.at.0 <= entry && entry - s.at.0 < s.file_size;
    let entry_segment = segments.iter().find(|s| is_entry(s));
    match (entry_segment, purpose) {
        (None, ImageKind::Payload) => return Err(ImageError::Malformed("entry outside the image")),
        (Some(segment), ImageKind::Kernel) if segment.virtual_address >= KERNEL_HALF => {}
        (_, ImageKind::Kernel) => return Err(ImageError::NotAKernel),
        (Some(_), ImageKind::Payload) => {}
    }
    for segment in &segments {
        segment.check(image.len(), &room)?;
    }
    for segment in &segments {
        image.load(segment.offset, segment.file_size, memory, segment.at)?;
    }
    let end = segments.iter().map(|s| s.at.0 + s.memory_size).max().unwrap_or(entry);
    Ok(LoadedImage { entry: Gpa(entry), end: Gpa(end) })
}

/// One PT_LOAD segment.
struct Segment {
    at: Gpa,
    virtual_address: u64,
    offset: u64,
    file_size: u64,
    memory_size: u64,
}

impl Segment {
    fn check(&self, image_len: u64, room: &Range<Gpa>) -> Result<(), ImageError> {
        if self.file_size > self.memory_size {
            return Err(ImageError::Malformed("a segment is larger in the file than in memory"));
        }
        let end = self.at.0.checked_add(self.memory_size);
        let end = end.ok_or(ImageError::Malformed("a segment wraps around"))?;
        if self.at < room.start {
            return Err(ImageError::TooLow(room.start.0));
        }
        if end > room.end.0 {
            return Err(ImageError::too_large(end, room.end));
        }
        match self.offset.checked_add(self.file_size) {
            Some(file_end) if file_end <= image_len => Ok(()),
            _ => Err(ImageError::Truncated),
        }
    }
}

/// Returns the segments that occupy memory.
fn segments<R: ReadVolatile + Seek>(image: &mut Image<'_, R>) -> Result<Vec<Segment>, ImageError> {
    let header: Elf64_Ehdr = image.read_struct(0)?;
    let ident = header.e_ident;
    if ident[..4] != MAGIC {
        return Err(ImageError::Unrecognised);
    }
    if ident[4] != CLASS_64 || ident[5] != DATA_LITTLE_ENDIAN || header.e_machine != EM_X86_64 {
        return Err(ImageError::ForeignElf);
    }
    if header.e_type != ET_EXEC {
        return Err(ImageError::NotAKernel);
    }
    if usize::from(header.e_phentsize) != size_of::<Elf64_Phdr>() {
        return Err(ImageError::Malformed("unexpected size of program headers"));
    }
    if header.e_phnum > MAX_SEGMENTS {
        return Err(ImageError::Malformed("too many program headers"));
    }
    // The section headers are not needed here, but linkers put them last. A file that ends before
    // them was truncated, perhaps in the middle of a section.
    let sections = u64::from(header.e_shnum) * u64::from(header.e_shentsize);
    if sections > 0 && header.e_shoff.checked_add(sections).is_none_or(|end| end > image.len()) {
        return Err(ImageError::Truncated);
    }
    let mut segments = Vec::new();
    for index in 0..u64::from(header.e_phnum) {
        let offset = header.e_phoff.checked_add(index * size_of::<Elf64_Phdr>() as u64);
        let program: Elf64_Phdr = image.read_struct(offset.ok_or(ImageError::Truncated)?)?;
        if program.p_type == PT_LOAD && program.p_memsz > 0 {
            segments.push(Segment {
                at: Gpa(program.p_paddr),
                virtual_address: program.p_vaddr,
                offset: program.p_offset,
                file_size: program.p_filesz,
                memory_size: program.p_memsz,
            });
        }
    }
    Ok(segments)
}
