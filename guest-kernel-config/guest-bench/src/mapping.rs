//! Memory mapped directly from the kernel: an allocator would reuse it.

use std::{io, ptr, slice};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Zeroed memory that is faulted in when touched; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` bytes, at least one.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags)? };
        Ok(Self { start: start.cast(), bytes })
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: these bytes are mapped, readable and writable until `self` is dropped, no other
        // reference to them exists, and `&mut self` is borrowed for as long.
        unsafe { slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// Makes the memory read-only. The kernel invalidates its translations on all CPUs of the process.
    pub fn into_read_only(self) -> io::Result<ReadOnly> {
        // SAFETY: these bytes are mapped, and nobody can write to them any more: `self` is consumed.
        unsafe { mprotect(self.start.cast(), self.bytes, MprotectFlags::READ)? };
        Ok(ReadOnly { _mapping: self })
    }
}

/// Read-only memory; unmapped when dropped.
#[derive(Debug)]
pub struct ReadOnly {
    _mapping: Mapping,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and no borrow of it is left.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_mapping_is_zeroed_and_writable() {
        let mut mapping = super::Mapping::new(10_000).unwrap();
        let bytes = mapping.bytes();
        assert!(bytes.len() == 10_000 && bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        assert_eq!(bytes[9_999], 7);
    }
}
