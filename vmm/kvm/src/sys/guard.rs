//! Pages without access around guest memory: an access of this process that runs off either end of it
//! faults, instead of meeting a heap or a stack.

use std::{
    ffi::c_void,
    ptr::{self, NonNull},
};

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
    /// A guard at an address of the kernel's choice: the kernel fills gaps from above, so what is
    /// mapped next comes to lie below it, with room for a guard of its own once this one is dropped.
    pub fn anywhere() -> Option<Self> {
        Self::map(ptr::null_mut(), MapFlags::empty())
    }

    /// A guard in front of and behind each region, where nothing else is mapped.
    pub fn around(memory: &GuestMemoryMmap) -> Vec<Self> {
        let regions = memory.iter().filter_map(|region| {
            let start = memory.get_host_address(region.start_addr()).ok()?;
            Some((start, region.len() as usize))
        });
        let ends =
            |(start, len): (*mut u8, usize)| [start.wrapping_sub(PAGE), start.wrapping_add(len)];
        regions.flat_map(ends).filter_map(Self::at).collect()
    }

    /// A guard at `address`; None if something is mapped there.
    fn at(address: *mut u8) -> Option<Self> {
        Self::map(address.cast(), MapFlags::FIXED_NOREPLACE)
    }

    fn map(address: *mut c_void, flags: MapFlags) -> Option<Self> {
        let flags = flags | MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, which replaces none.
        let at = unsafe { mmap_anonymous(address, PAGE, ProtFlags::empty(), flags) }.ok()?;
        let made = Self(NonNull::new(at)?);
        // Kernels before 4.17 take the address as a hint only.
        (address.is_null() || at == address).then_some(made)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: its own page, to which there are no references.
        let _ = unsafe { munmap(self.0.as_ptr(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread, time::Duration};

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

    #[test]
    fn memory_between_guards_has_no_neighbours() {
        const SIZE: usize = 1 << 20;
        let memory = {
            let _above = Guard::anywhere().unwrap();
            GuestMemoryMmap::from_ranges(&[(GuestAddress(0), SIZE)]).unwrap()
        };
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

    /// Other tests' memory may take the places of guards for as long as those tests last.
    #[test]
    fn memory_gets_both_guards_where_there_is_room() {
        let gets_both = (0..1000).any(|_| {
            let above = Guard::anywhere();
            let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 5 << 20)]).unwrap();
            drop(above);
            let got = Guard::around(&memory).len();
            thread::sleep(Duration::from_millis(u64::from(got < 2)));
            got == 2
        });
        assert!(gets_both);
    }
}
