//! Keeping guest memory out of core dumps.

use std::io;

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

/// Leaves guest memory out of this process's core dumps, which it would fill.
/// It also makes its mappings known in `/proc/PID/smaps`: the only nameless ones
/// with the flag `dd`, which the kernel merges with no other.
pub fn leave_out(memory: &GuestMemoryMmap) -> io::Result<()> {
    memory.iter().try_for_each(|region| {
        let start = memory.get_host_address(region.start_addr()).map_err(io::Error::other)?;
        // SAFETY: the range is one live mapping, of this length, of `memory`. The
        // advice changes nothing of its contents.
        match unsafe { libc::madvise(start.cast(), region.len() as usize, libc::MADV_DONTDUMP) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}
