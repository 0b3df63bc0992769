//! Guest memory in this process's address space.

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, MmapRegion};

use super::VmError;
use crate::units::ByteSize;
use boot::memory::regions;
use kvm::sys::{advice, guard::Guard};

/// KVM maps a huge page of the host as one page in the guest if the addresses in this process and
/// in the guest are equal modulo its size.
const HUGE_PAGE: usize = 2 << 20;

/// Maximum number of mappings that are set aside until one is aligned.
const TRIES: usize = 3;

/// How the guest will use its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    /// All of it, as a kernel does: huge pages pay off.
    Dense,
    /// Single pages: a huge page would have to be cleared for each.
    Sparse,
}

/// Maps guest memory of this size.
pub(super) fn map(size: ByteSize, usage: Usage) -> Result<GuestMemoryMmap, VmError> {
    let failed = |error: String| VmError::Memory(size, error);
    // For the guards that `KvmVm` maps.
    let memory = Guard::with_room(|| match usage {
        Usage::Dense => aligned(size, plain(size)?),
        Usage::Sparse => plain(size),
    });
    let memory = memory.map_err(failed)?;
    if usage == Usage::Dense {
        // A kernel without huge pages refuses, which is harmless.
        let _ = advice::prefer_huge_pages(&memory);
    }
    advice::leave_out_of_dumps(&memory).map_err(|error| failed(error.to_string()))?;
    Ok(memory)
}

fn plain(size: ByteSize) -> Result<GuestMemoryMmap, String> {
    GuestMemoryMmap::from_ranges(&regions(size)).map_err(|error| error.to_string())
}

/// Remaps it until it is aligned to a huge page. vm-memory leaves the address to the kernel, which
/// fills gaps from above: a stopgap mapping above moves the memory down. If that fails, for
/// instance because another thread maps memory meanwhile, only speed is lost.
fn aligned(size: ByteSize, mut memory: GuestMemoryMmap) -> Result<GuestMemoryMmap, String> {
    let mut stopgaps = Vec::new();
    for _ in 0..TRIES {
        let excess = excess(&memory);
        if excess == 0 {
            break;
        }
        drop(memory);
        // At least a huge page, so that it does not fit a smaller gap than the memory does.
        let stopgap: MmapRegion =
            MmapRegion::new(HUGE_PAGE + excess).map_err(|error| error.to_string())?;
        stopgaps.push(stopgap);
        memory = plain(size)?;
    }
    Ok(memory)
}

/// Distance of the memory's address from the preceding huge-page boundary.
fn excess(memory: &GuestMemoryMmap) -> usize {
    let first = memory.iter().next().map(GuestMemoryRegion::start_addr);
    let host = first.and_then(|start| memory.get_host_address(start).ok());
    host.map_or(0, |host| host.addr() % HUGE_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_a_kernel_is_aligned_for_huge_pages() {
        // Other tests' threads map memory, too, so many attempts may fail. But without the stopgaps
        // 1 in 512 is aligned by chance, and 8 of 64 never are.
        let kept: Vec<_> =
            (0..64).map(|i| map(ByteSize::mib(64 + i), Usage::Dense).unwrap()).collect();
        assert!(kept.iter().filter(|memory| excess(memory) == 0).count() >= 8);
        assert!(kept.iter().all(|memory| memory.iter().next().unwrap().len() >= 64 << 20));
    }

    #[test]
    fn sizes_that_are_no_multiple_of_a_huge_page_work() {
        let memory = map(ByteSize((5 << 20) + 4096), Usage::Dense).unwrap();
        assert_eq!(memory.iter().map(|region| region.len()).sum::<u64>(), (5 << 20) + 4096);
    }
}
