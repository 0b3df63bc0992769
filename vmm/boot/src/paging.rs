//! Identity-mapping page tables of 2 MiB pages.

use kvm_bindings::kvm_sregs;
use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap, bitmap::Bitmap};

use super::layout::{self, PAGE_SIZE};
use base::units::Gpa;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// In a page directory: maps 2 MiB instead of pointing to a table.
const LARGE: u64 = 1 << 7;

const LARGE_PAGE: u64 = 2 << 20;
const DIRECTORY: u64 = 1 << 30;
const ENTRIES: usize = 512;

/// Rings that may use the mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MappingAccess {
    /// Ring 0 only.
    Kernel,
    /// All rings.
    User,
}

/// Maps 0 up to at least `end`, at most 4 GiB, with one page directory per GiB.
pub(super) fn write(
    memory: &GuestMemoryMmap<impl Bitmap>,
    end: Gpa,
    access: MappingAccess,
) -> Result<(), GuestMemoryError> {
    let flags = match access {
        MappingAccess::Kernel => PRESENT | WRITABLE | ACCESSED,
        MappingAccess::User => PRESENT | WRITABLE | ACCESSED | USER,
    };
    let end = end.0.min(layout::HOLE_END.0).next_multiple_of(LARGE_PAGE);
    let directories = end.div_ceil(DIRECTORY);
    let table = |index: u64| layout::PAGE_TABLES.0 + index * PAGE_SIZE;
    let (pml4, pdpt, first_directory) = (table(0), table(1), 2);

    write_table(memory, pml4, [pdpt | flags].into_iter())?;
    write_table(memory, pdpt, (0..directories).map(|i| table(first_directory + i) | flags))?;
    for directory in 0..directories {
        let start = directory * DIRECTORY;
        let pages = (start..end.min(start + DIRECTORY)).step_by(LARGE_PAGE as usize);
        let entries = pages.map(|page| page | flags | DIRTY | LARGE);
        write_table(memory, table(first_directory + directory), entries)?;
    }
    Ok(())
}

fn write_table(
    memory: &GuestMemoryMmap<impl Bitmap>,
    at: u64,
    entries: impl Iterator<Item = u64>,
) -> Result<(), GuestMemoryError> {
    let mut table = [[0; 8]; ENTRIES];
    for (slot, entry) in table.iter_mut().zip(entries) {
        *slot = entry.to_le_bytes();
    }
    memory.write_slice(table.as_flattened(), GuestAddress(at))
}

/// Turns on long mode with these tables. Sets all bits explicitly rather than by OR: after a reset
/// CR0 has the caches off.
pub(super) fn set_long_mode(sregs: &mut kvm_sregs) {
    const CR0_PE: u64 = 1 << 0;
    const CR0_MP: u64 = 1 << 1;
    const CR0_ET: u64 = 1 << 4;
    const CR0_NE: u64 = 1 << 5;
    const CR0_WP: u64 = 1 << 16;
    const CR0_AM: u64 = 1 << 18;
    const CR0_PG: u64 = 1 << 31;
    const CR4_PAE: u64 = 1 << 5;
    const EFER_LME: u64 = 1 << 8;
    const EFER_LMA: u64 = 1 << 10;
    sregs.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_AM | CR0_PG;
    sregs.cr2 = 0;
    sregs.cr3 = layout::PAGE_TABLES.0;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LME | EFER_LMA;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap()
    }

    fn entry(memory: &GuestMemoryMmap<impl Bitmap>, table: u64, index: u64) -> u64 {
        memory.read_obj(GuestAddress(table + index * 8)).unwrap()
    }

    /// Walks the tables like a CPU; returns the physical address and the last entry.
    fn translate(memory: &GuestMemoryMmap<impl Bitmap>, address: u64) -> Option<(u64, u64)> {
        let mut table = layout::PAGE_TABLES.0;
        for shift in [39, 30, 21] {
            let e = entry(memory, table, address >> shift & 511);
            if e & PRESENT == 0 {
                return None;
            }
            if shift == 21 {
                assert_ne!(e & LARGE, 0);
                return Some(((e & !0x1f_ffff) | address & 0x1f_ffff, e));
            }
            table = e & !0xfff;
        }
        None
    }

    #[test]
    fn addresses_translate_to_themselves_up_to_the_end() {
        let memory = memory();
        for end in [0x100_0000, 1 << 30, (1 << 30) + 1, 1 << 32] {
            write(&memory, Gpa(end), MappingAccess::Kernel).unwrap();
            for address in [0, 0x1234, end / 2 + 7, end - 1] {
                assert_eq!(translate(&memory, address).map(|t| t.0), Some(address), "{end:#x}");
            }
            assert_eq!(translate(&memory, end + LARGE_PAGE), None, "{end:#x}");
        }
    }

    #[test]
    fn user_bit_is_set_on_request() {
        let memory = memory();
        for (access, bit) in [(MappingAccess::Kernel, 0), (MappingAccess::User, USER)] {
            write(&memory, Gpa(0x100_0000), access).unwrap();
            let (_, leaf) = translate(&memory, 0x20_0000).unwrap();
            assert_eq!(leaf & USER, bit);
            assert_eq!(entry(&memory, layout::PAGE_TABLES.0, 0) & USER, bit);
        }
    }
}
