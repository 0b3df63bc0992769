//! Guest memory in this process's address space, surrounded by inaccessible guard pages. An out-of-bounds
//! access by this process faults instead of reaching a heap or a stack.

use std::{ffi::c_void, io, ptr::NonNull};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use vm_memory::{
    GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion,
    bitmap::{Bitmap, WithBitmapSlice},
    mmap::MmapRegionBuilder,
};

/// Page size: the minimum size of a guard, and the minimum alignment.
pub const PAGE: usize = 4096;

/// The memory of a guest.
pub type Ram = GuestMemoryMmap<Reserved>;

/// The reserved address range of a region of guest memory and its guards; unmapped on drop. It takes the
/// place of vm-memory's dirty bitmap, which has the same lifetime as its region. Dirty pages are not tracked.
#[derive(Debug)]
pub struct Reserved {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: it owns its mapping, which is not bound to a thread.
unsafe impl Send for Reserved {}
// SAFETY: nothing is ever read or written through it.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Reserves `len` inaccessible bytes.
    fn new(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address chosen by the kernel, which replaces no other mapping.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Makes `len` bytes at `at` accessible. Both must be multiples of the page size and within the range.
    fn open(&self, at: usize, len: usize) -> io::Result<*mut u8> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "outside of the range");
        let start = self.start.as_ptr().cast::<u8>().wrapping_add(at);
        // SAFETY: the range lies in the mapping, and there are no references to it yet.
        unsafe { mprotect(start.cast(), len, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(start)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and dropping the region in it is what drops `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) };
    }
}

impl WithBitmapSlice<'_> for Reserved {
    type S = ();
}

impl Bitmap for Reserved {
    fn mark_dirty(&self, _offset: usize, _len: usize) {}

    fn dirty_at(&self, _offset: usize) -> bool {
        false
    }

    fn slice_at(&self, _offset: usize) {}
}

/// Maps zeroed memory for these regions (address, bytes), each separated from its neighbours in this process
/// by at least a page. Lengths must be multiples of the page size. Guest addresses and addresses in this
/// process are equal modulo `alignment`, a power of two of at least a page.
///
/// Fails if the address space does not suffice, a region's address is not page-aligned, or regions overlap or
/// are not in ascending order.
pub fn map(regions: &[(GuestAddress, usize)], alignment: usize) -> io::Result<Ram> {
    let regions: io::Result<Vec<_>> =
        regions.iter().map(|&(at, len)| region(at, len, alignment)).collect();
    Ram::from_regions(regions?).map_err(io::Error::other)
}

fn region(at: GuestAddress, len: usize, alignment: usize) -> io::Result<GuestRegionMmap<Reserved>> {
    let size = alignment.max(PAGE).checked_add(len).and_then(|len| len.checked_add(PAGE));
    let reserved = Reserved::new(size.ok_or(io::ErrorKind::OutOfMemory)?)?;
    let first = reserved.start.addr().get() + PAGE;
    let offset = PAGE + ((at.0 as usize).wrapping_sub(first) & (alignment - 1));
    let start = reserved.open(offset, len)?;
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let mapping = MmapRegionBuilder::new_with_bitmap(len, reserved)
        .with_mmap_prot(access)
        .with_mmap_flags(flags | libc::MAP_NORESERVE);
    // SAFETY: `len` bytes from `start` are mapped until the region drops its `Reserved`. The region does not
    // unmap them itself.
    let mapping: MmapRegion<Reserved> =
        unsafe { mapping.with_raw_mmap_pointer(start) }.build().map_err(io::Error::other)?;
    GuestRegionMmap::new(mapping, at).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vm_memory::{Bytes, GuestMemoryBackend};

    use super::*;

    /// Returns the access permissions of the mapping at `address`, or None if nothing is mapped there.
    fn access(address: usize) -> Option<String> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let (range, flags) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            (number(start)?..number(end)?).contains(&address).then(|| flags[..4].to_owned())
        })
    }

    fn host(memory: &Ram, at: u64) -> usize {
        memory.get_host_address(GuestAddress(at)).unwrap().addr()
    }

    #[test]
    fn memory_has_guard_pages() {
        const SIZE: usize = 5 << 20;
        const HIGH: u64 = 4 << 30;
        let regions = [(GuestAddress(0), SIZE), (GuestAddress(HIGH), SIZE)];
        for alignment in [PAGE, 2 << 20] {
            // Several at once, because their ranges may be adjacent.
            let memories: Vec<_> = (0..16).map(|_| map(&regions, alignment).unwrap()).collect();
            for at in memories.iter().flat_map(|memory| [host(memory, 0), host(memory, HIGH)]) {
                let ends = [at - PAGE, at, at + SIZE - 1, at + SIZE];
                let [before, first, last, after] = ends.map(|address| access(address).unwrap());
                assert_eq!([before, after], ["---p", "---p"]);
                assert_eq!([first, last], ["rw-p", "rw-p"]);
            }
        }
    }

    #[test]
    fn addresses_are_equal_modulo_the_alignment() {
        for (at, alignment) in [(0, PAGE), (0, 2 << 20), (0x5000, 2 << 20), (4 << 30, 1 << 30)] {
            let memory = map(&[(GuestAddress(at), 3 * PAGE)], alignment).unwrap();
            assert_eq!(host(&memory, at) % alignment, at as usize % alignment);
        }
    }

    /// Every vCPU holds a clone.
    #[test]
    fn a_clone_keeps_the_mapping() {
        let memory = map(&[(GuestAddress(0), 2 * PAGE)], PAGE).unwrap();
        let clone = memory.clone();
        drop(memory);
        clone.write_obj(7_u8, GuestAddress(PAGE as u64)).unwrap();
        assert_eq!(clone.read_obj::<u8>(GuestAddress(PAGE as u64)).unwrap(), 7);
    }

    /// 256 regions of 1 TiB exceed a process's 128 TiB of address space (x86/x86_64/mm.rst).
    #[test]
    fn drop_unmaps_everything() {
        for _ in 0..256 {
            let memory = map(&[(GuestAddress(0), PAGE)], 1 << 40).unwrap();
            drop(memory);
        }
    }

    #[test]
    fn rejects_unmappable_regions() {
        assert!(map(&[(GuestAddress(0), usize::MAX - PAGE)], PAGE).is_err(), "more than there is");
        assert!(map(&[(GuestAddress(0), usize::MAX / 2)], PAGE).is_err(), "more than there is");
        let twice = [(GuestAddress(0), PAGE), (GuestAddress(0), PAGE)];
        assert!(map(&twice, PAGE).is_err(), "regions overlap");
    }
}
