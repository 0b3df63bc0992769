//! The memory of a machine, as its guest will use it.

use super::VmError;
use base::units::ByteSize;
use boot::memory::regions;
use kvm::sys::{
    advice,
    ram::{self, PAGE, Ram},
};

/// KVM maps a huge page of the host as one page in the guest if the addresses in this process and
/// in the guest are equal modulo its size.
const HUGE_PAGE: usize = 2 << 20;

/// How the guest will use its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryUsage {
    /// All of it, as a kernel does: huge pages pay off.
    Dense,
    /// Single pages: a huge page would have to be cleared for each.
    Sparse,
}

/// Maps guest memory of this size.
pub(super) fn map(size: ByteSize, usage: MemoryUsage) -> Result<Ram, VmError> {
    let alignment = if usage == MemoryUsage::Dense { HUGE_PAGE } else { PAGE };
    let failed = |error: std::io::Error| VmError::Memory(size, error.to_string());
    let memory = ram::map(&regions(size), alignment).map_err(failed)?;
    if usage == MemoryUsage::Dense {
        // A kernel without huge pages refuses, which is harmless.
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
    fn sizes_that_are_no_multiple_of_a_huge_page_work() {
        for usage in [MemoryUsage::Dense, MemoryUsage::Sparse] {
            let memory = map(ByteSize((5 << 20) + 4096), usage).unwrap();
            assert_eq!(memory.iter().map(|region| region.len()).sum::<u64>(), (5 << 20) + 4096);
        }
    }
}
