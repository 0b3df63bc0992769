//! Errors in a kernel, payload, initrd or command line.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;
use vm_memory::GuestMemoryError;

use super::kind::FileKind;
use base::units::{ByteSize, Gpa};

/// Reason why a guest could not be loaded into memory.
#[derive(Debug, Error)]
pub enum BootError {
    /// The kernel file cannot be loaded.
    #[error("kernel")]
    Kernel(#[source] ImageError),
    /// The payload image cannot be loaded.
    #[error("payload")]
    Payload(#[source] ImageError),
    /// A part of the initrd cannot be read.
    #[error("initrd: cannot read {0}")]
    InitrdUnreadable(PathBuf, #[source] io::Error),
    /// A part of the initrd is shorter than its headers state.
    #[error("initrd: {0} is truncated")]
    InitrdTruncated(PathBuf),
    /// Kernel and initrd together do not fit into memory.
    #[error("initrd: {size} do not fit next to the kernel{}: give the machine more memory (--mem)", largest_file(.largest.as_deref()))]
    InitrdTooLarge {
        /// The largest file of the initrd.
        largest: Option<PathBuf>,
        /// Total size of all parts.
        size: ByteSize,
    },
    /// The command line is longer than the kernel accepts.
    #[error("command line: {length} bytes exceed this kernel's limit of {limit}")]
    CmdlineTooLong {
        /// Length in bytes.
        length: usize,
        /// Maximum length in bytes, without the NUL.
        limit: usize,
    },
    /// The command line contains a NUL, which would terminate it early.
    #[error("command line: it contains a NUL byte")]
    CmdlineNul,
    /// Guest memory has no RAM at an address of boot data.
    #[error("guest memory is too small for the boot data")]
    Memory(#[from] GuestMemoryError),
}

/// Reason why a kernel or payload image was rejected.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot read the file")]
    Unreadable(#[source] io::Error),
    /// The file has neither magic number.
    #[error("not a Linux kernel: neither an ELF vmlinux nor a bzImage")]
    Unrecognised,
    /// The file has another known type.
    #[error("not a Linux kernel, but {}", .0.kernel_advice())]
    OtherKind(FileKind),
    /// The raw code of a kernel, without a load address or an entry point.
    #[error(
        "not a Linux kernel with a header, but its raw code (vmlinux.bin): use the vmlinux or the bzImage it was made \
         from"
    )]
    Raw,
    /// An ELF file for another machine, class or byte order.
    #[error("not an x86-64 kernel: an ELF file for another machine")]
    ForeignElf,
    /// An ELF file, but an object file, a shared library, a core or a user program.
    #[error("an ELF file, but not a Linux kernel")]
    NotAKernel,
    /// The file ends before the end stated in its header.
    #[error("the file is truncated")]
    Truncated,
    /// The header is inconsistent.
    #[error("malformed header: {0}")]
    Malformed(&'static str),
    /// A bzImage without a 64-bit entry point.
    #[error("a 32-bit kernel: it has no 64-bit entry")]
    Only32Bit,
    /// A bzImage older than the 64-bit boot protocol.
    #[error("boot protocol {}.{:02} is too old: 2.12 (Linux 3.8) is required", .0 >> 8, .0 & 0xff)]
    OldProtocol(u16),
    /// The image does not fit into the RAM at its address.
    #[error("it needs {needs} of memory, and the machine has {has} there: give it more with --mem")]
    TooLarge {
        /// End of the image, rounded up to MiB.
        needs: ByteSize,
        /// End of the RAM (or the range reserved) for it.
        has: ByteSize,
    },
    /// The image is linked to addresses reserved for boot data.
    #[error("its load address is below {0:#x}, in the range of boot data")]
    TooLow(u64),
}

fn largest_file(file: Option<&Path>) -> String {
    file.map_or_else(String::new, |file| format!(" (the largest file: {})", file.display()))
}

impl ImageError {
    /// Returns the error for an image that ends at `end`, beyond `room_end`.
    pub(super) fn too_large(end: u64, room_end: Gpa) -> Self {
        // Whole MiB are easier to read. Values that cannot be rounded up are absurd.
        let needs = end.checked_next_multiple_of(1 << 20).unwrap_or(end);
        Self::TooLarge { needs: ByteSize(needs), has: ByteSize(room_end.0) }
    }
}
