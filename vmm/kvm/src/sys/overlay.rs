//! Guest memory backed by a file and shared with other processes.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use base::units::Gpa;
use vm_memory::{GuestAddress, GuestMemoryBackend};

use super::ram::Ram;

/// File-backed memory from an offset on.
#[derive(Debug, Clone, Copy)]
pub struct FileRegion<'a> {
    /// The file to map.
    pub file: BorrowedFd<'a>,
    /// Offset in the file in bytes; a multiple of the page size.
    pub offset: u64,
}

/// Maps the shared memory over `size` bytes of guest memory at `at`. Both ends must be page-aligned, and
/// the guest must not be running yet.
pub fn map_over(memory: &Ram, at: Gpa, size: usize, shared: FileRegion<'_>) -> io::Result<()> {
    let range = memory.get_slice(GuestAddress(at.0), size).map_err(io::Error::other)?;
    let start = range.ptr_guard_mut();
    let offset = libc::off_t::try_from(shared.offset).map_err(io::Error::other)?;
    // SAFETY: the range lies within a live mapping of `memory`, which stays mapped and keeps its length:
    // only the memory behind these pages changes. They are unmapped together with `memory`.
    let mapped = unsafe {
        libc::mmap(
            start.as_ptr().cast(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
            shared.file.as_raw_fd(),
            offset,
        )
    };
    match mapped {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsFd};

    use rustix::fs::{MemfdFlags, memfd_create};
    use vm_memory::Bytes;

    use super::{super::ram, *};

    #[test]
    fn only_the_range_is_shared() {
        let mut file = std::fs::File::from(memfd_create("lines", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(&[7; 3 * 4096]).unwrap();
        let memory = ram::map(&[(GuestAddress(0), 16 * 4096)], 4096).unwrap();
        let shared = FileRegion { file: file.as_fd(), offset: 4096 };
        map_over(&memory, Gpa(2 * 4096), 2 * 4096, shared).unwrap();
        let byte = |page: u64| memory.read_obj::<u8>(GuestAddress(page * 4096)).unwrap();
        assert_eq!([byte(1), byte(2), byte(3), byte(4)], [0, 7, 7, 0]);
        memory.write_obj(9_u8, GuestAddress(2 * 4096)).unwrap();
        let mut bytes = [0; 1];
        rustix::io::pread(&file, &mut bytes, 4096).unwrap();
        assert_eq!(bytes, [9]);
        assert!(map_over(&memory, Gpa(15 * 4096), 2 * 4096, shared).is_err(), "beyond the memory");
    }
}
