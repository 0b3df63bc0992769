//! Advice to the kernel about guest memory.

use std::io;

use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use super::ram::Ram;

/// Leaves guest memory out of this process's core dumps, which it would fill. It also makes the
/// mappings recognizable in `/proc/PID/smaps`: they are the only anonymous ones with the flag `dd`,
/// and the kernel merges them with no other.
pub fn leave_out_of_dumps(memory: &Ram) -> io::Result<()> {
    advise(memory, libc::MADV_DONTDUMP)
}

/// Asks for huge pages where the host grants them on request: a guest that fills its memory then
/// costs one exit and fault per 2 MiB instead of per 4 KiB.
pub fn prefer_huge_pages(memory: &Ram) -> io::Result<()> {
    advise(memory, libc::MADV_HUGEPAGE)
}

fn advise(memory: &Ram, advice: libc::c_int) -> io::Result<()> {
    memory.iter().try_for_each(|region| {
        let start = memory.get_host_address(region.start_addr()).map_err(io::Error::other)?;
        // SAFETY: the range is one live mapping, of this length, of `memory`. None
        // of the two advices changes its contents.
        match unsafe { libc::madvise(start.cast(), region.len() as usize, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}
