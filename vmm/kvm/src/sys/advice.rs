//! madvise(2) for guest memory.

use std::io;

use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use super::ram::Ram;

/// Excludes guest memory from this process's core dumps, which it would otherwise dominate. The
/// flag `dd` also identifies these mappings in `/proc/PID/smaps`: no other anonymous mappings have
/// it, and the kernel does not merge them with others.
pub fn leave_out_of_dumps(memory: &Ram) -> io::Result<()> {
    advise(memory, libc::MADV_DONTDUMP)
}

/// Requests huge pages where the host grants them on request. A guest that fills its memory then
/// costs one exit and fault per 2 MiB instead of per 4 KiB.
pub fn prefer_huge_pages(memory: &Ram) -> io::Result<()> {
    advise(memory, libc::MADV_HUGEPAGE)
}

fn advise(memory: &Ram, advice: libc::c_int) -> io::Result<()> {
    memory.iter().try_for_each(|region| {
        let start = memory.get_host_address(region.start_addr()).map_err(io::Error::other)?;
        // SAFETY: the range is one live mapping of this length in `memory`. Neither advice changes
        // its contents.
        match unsafe { libc::madvise(start.cast(), region.len() as usize, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}
