//! The shared mapping of a vCPU's file, where KVM writes the exit record.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    slice,
};

use kvm_ioctls::VcpuFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::KvmError;

/// The pages that a vCPU's file shares with KVM: `struct kvm_run`, followed by the data of port
/// accesses (kvm/api.rst, 5). Separate from the mapping of kvm-ioctls, which has no bounds.
#[derive(Debug)]
pub(super) struct ExitPages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns the mapping, which is not bound to a thread.
unsafe impl Send for ExitPages {}

impl ExitPages {
    pub(super) fn map(vcpu: &VcpuFd, len: usize) -> Result<Self, KvmError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: open as long as `vcpu` is borrowed.
        let file = unsafe { BorrowedFd::borrow_raw(vcpu.as_raw_fd()) };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) };
        let start = start.map_err(|error| KvmError::ExitPages(error.into()))?;
        let start = NonNull::new(start.cast()).ok_or(KvmError::ExitRecord)?;
        Ok(Self { start, len })
    }

    /// Returns the mapped bytes. The kernel writes them only while the vCPU runs, which requires a
    /// mutable borrow of the vCPU as well.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` mapped and initialised bytes that nothing else in this process refers to;
        // nothing writes them while they are borrowed.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for ExitPages {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and no reference to it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
