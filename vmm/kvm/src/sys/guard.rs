//! Pages without access around guest memory: an access of this process that runs off either end of it
//! faults, instead of meeting a heap or a stack.

use std::{ffi::c_void, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

/// The size of a guard.
const PAGE: usize = 4096;

/// One page without access; unmapped when dropped.
#[derive(Debug)]
pub struct Guard(NonNull<c_void>);

// SAFETY: it owns its page, which is not bound to a thread.
unsafe impl Send for Guard {}
// SAFETY: nothing is ever read or written through it.
unsafe impl Sync for Guard {}

impl Guard {
    /// Makes memory, and makes it again if there is no room for a guard at each end: the kernel fills gaps
    /// from above, so with the page held that was its last, the memory comes to lie below it.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn with_room<E>(
        make: impl Fn() -> Result<GuestMemoryMmap, E>,
    ) -> Result<GuestMemoryMmap, E> {
        let memory = make()?;
        if Self::around(&memory).len() == 2 * memory.num_regions() {
            return Ok(memory);
        }
        let last = |(start, len): (*mut u8, usize)| start.wrapping_add(len - PAGE);
        let pages: Vec<_> = mappings(&memory).map(last).collect();
        drop(memory);
        let _held: Vec<_> = pages.into_iter().filter_map(Self::at).collect();
        make()
    }

    /// A guard in front of and behind each region, where nothing else is mapped.
    pub fn around(memory: &GuestMemoryMmap) -> Vec<Self> {
        let ends =
            |(start, len): (*mut u8, usize)| [start.wrapping_sub(PAGE), start.wrapping_add(len)];
        mappings(memory).flat_map(ends).filter_map(Self::at).collect()
    }

    /// A guard at `address`; None if something is mapped there.
    fn at(address: *mut u8) -> Option<Self> {
        let flags = MapFlags::FIXED_NOREPLACE | MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, which replaces none.
        let at = unsafe { mmap_anonymous(address.cast(), PAGE, ProtFlags::empty(), flags) }.ok()?;
        let made = Self(NonNull::new(at)?);
        // Kernels before 4.17 take the address as a hint only.
        (at == address.cast()).then_some(made)
    }
}

/// Where each region is in this process, and its size in bytes.
fn mappings(memory: &GuestMemoryMmap) -> impl Iterator<Item = (*mut u8, usize)> {
    memory.iter().filter_map(|region| {
        let start = memory.get_host_address(region.start_addr()).ok()?;
        Some((start, region.len() as usize))
    })
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: its own page, to which there are no references.
        let _ = unsafe { munmap(self.0.as_ptr(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vm_memory::GuestAddress;

    use super::*;

    /// The access of the mapping that has `address`.
    fn access(address: usize) -> Option<String> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            (number(start)?..number(end)?).contains(&address).then(|| rest[..4].to_owned())
        })
    }

    fn mapped(size: usize) -> GuestMemoryMmap {
        Guard::with_room(|| GuestMemoryMmap::from_ranges(&[(GuestAddress(0), size)])).unwrap()
    }

    #[test]
    fn memory_between_guards_has_no_neighbours() {
        const SIZE: usize = 1 << 20;
        let memory = mapped(SIZE);
        let start = memory.get_host_address(GuestAddress(0)).unwrap().addr();
        let guards = Guard::around(&memory);
        // Another thread may have mapped something there in the meantime: then there is no guard.
        for guard in &guards {
            let at = guard.0.addr().get();
            assert!(at + PAGE == start || at == start + SIZE, "{at:x} beside {start:x}");
            assert_eq!(access(at).unwrap(), "---p");
        }
        assert!(Guard::around(&memory).is_empty() || guards.len() < 2, "a guard replaces nothing");
        assert_eq!(access(start).unwrap(), "rw-p");
    }

    /// Another thread of the tests may take the place of a guard in the meantime.
    #[test]
    fn memory_gets_both_guards() {
        let tried = (0..64).filter(|_| Guard::around(&mapped(5 << 20)).len() == 2).count();
        assert!(tried > 16, "{tried} of 64");
    }
}
