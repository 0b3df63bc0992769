//! Allocation of a machine's memory.

use super::VmError;
use base::units::ByteSize;
use boot::memory::regions;
use kvm::sys::{
    advice,
    ram::{self, PAGE, Ram},
};

/// KVM maps a huge page of the host as one page in the guest only if the addresses in this
/// process and in the guest are equal modulo this size.
const HUGE_PAGE: usize = 2 << 20;

/// The guest's pattern of memory usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryUsage {
    /// Most of it, as by a kernel: huge pages are worthwhile.
    Dense,
    /// Single pages: each would require clearing a huge page.
    Sparse,
}

pub(super) fn map(size: ByteSize, usage: MemoryUsage) -> Result<Ram, VmError> {
    let alignment = if usage == MemoryUsage::Dense { HUGE_PAGE } else { PAGE };
    let failed = |error: std::io::Error| VmError::Memory(size, error.to_string());
    let memory = ram::map(&regions(size), alignment).map_err(failed)?;
    if usage == MemoryUsage::Dense {
        // Fails on a kernel without huge pages, which is harmless.
        let _ = advice::prefer_huge_pages(&memory);
    }
    advice::leave_out_of_dumps(&memory).map_err(failed)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

    use super::*;

    #[test]
    fn memory_for_a_kernel_is_aligned_for_huge_pages() {
        for mib in [64, 65, 4096] {
            let memory = map(ByteSize::mib(mib), MemoryUsage::Dense).unwrap();
            for region in memory.iter() {
                let host = memory.get_host_address(region.start_addr()).unwrap().addr();
                assert_eq!(host % HUGE_PAGE, 0, "{mib} MiB");
            }
        }
    }

    #[test]
    fn maps_sizes_unaligned_to_huge_pages() {
        for usage in [MemoryUsage::Dense, MemoryUsage::Sparse] {
            let memory = map(ByteSize((5 << 20) + 4096), usage).unwrap();
            assert_eq!(memory.iter().map(|region| region.len()).sum::<u64>(), (5 << 20) + 4096);
        }
    }
}
