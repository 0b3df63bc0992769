//! What can be wrong with a kernel, an initrd or a command line.

use std::io;

use thiserror::Error;
use vm_memory::GuestMemoryError;

use crate::units::{ByteSize, Gpa};

/// Why a guest could not be put into memory.
#[derive(Debug, Error)]
pub enum BootError {
    /// The kernel file.
    #[error("kernel: {0}")]
    Kernel(#[source] ImageError),
    /// The payload image.
    #[error("payload: {0}")]
    Payload(#[source] ImageError),
    /// Reading a part of the initrd.
    #[error("initrd: cannot read it: {0}")]
    InitrdUnreadable(#[source] io::Error),
    /// A part of the initrd is shorter than it says.
    #[error("initrd: the file is truncated")]
    InitrdTruncated,
    /// Kernel and initrd do not fit together.
    #[error("initrd: {size} do not fit beside the kernel; give the machine more memory")]
    InitrdTooLarge {
        /// All parts together.
        size: ByteSize,
    },
    /// Longer than the kernel would read.
    #[error("command line: {length} bytes are more than the {limit} this kernel takes")]
    CmdlineTooLong {
        /// Bytes given.
        length: usize,
        /// Bytes the kernel takes, without the NUL.
        limit: usize,
    },
    /// A NUL would end the line early.
    #[error("command line: it contains a NUL byte")]
    CmdlineNul,
    /// Memory has no RAM where boot data belongs.
    #[error("guest memory is too small for the boot data")]
    Memory(#[from] GuestMemoryError),
}

/// What is wrong with a kernel or payload image.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The file's own error.
    #[error("cannot read the file: {0}")]
    Unreadable(#[source] io::Error),
    /// Neither magic number.
    #[error("not a Linux kernel: neither an ELF vmlinux nor a bzImage")]
    Unrecognised,
    /// ELF for another machine or class.
    #[error("not an x86-64 kernel: an ELF file for another machine")]
    ForeignElf,
    /// ELF, but an object file, a shared library, a core or a user program.
    #[error("an ELF file, but not a Linux kernel")]
    NotAKernel,
    /// The file ends before what its header promises.
    #[error("the file is truncated")]
    Truncated,
    /// The header contradicts itself.
    #[error("malformed header: {0}")]
    Malformed(&'static str),
    /// bzImage without a 64-bit entry.
    #[error("a 32-bit kernel: it has no 64-bit entry")]
    Only32Bit,
    /// bzImage older than the 64-bit boot protocol.
    #[error("boot protocol {}.{:02} is too old: 2.12 (Linux 3.8) is needed", .0 >> 8, .0 & 0xff)]
    OldProtocol(u16),
    /// Wants RAM where there is none.
    #[error("it needs {needs} of memory, and the machine has {has} there: give it more with --mem")]
    TooLarge {
        /// First address after the image in use.
        needs: ByteSize,
        /// First address after the RAM (or the room set aside) for it.
        has: ByteSize,
    },
    /// Wants addresses that are not for images.
    #[error("it wants to be loaded below {0:#x}, where boot data lies")]
    TooLow(u64),
}

impl ImageError {
    /// An image that ends at `end`, where there is room up to `room_end`.
    pub(super) fn too_large(end: u64, room_end: Gpa) -> Self {
        // Whole MiB read better; what does not round up is absurd anyway.
        let needs = end.checked_next_multiple_of(1 << 20).unwrap_or(end);
        Self::TooLarge { needs: ByteSize(needs), has: ByteSize(room_end.0) }
    }
}
