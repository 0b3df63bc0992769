//! The initrd: any number of parts, one behind the other at the top of low RAM.
//!
//! Linux unpacks concatenated archives in order, a later file over an earlier one;
//! each must begin at a multiple of four bytes.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::ops::Range;

use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use super::error::BootError;
use super::layout::PAGE_SIZE;
use super::newc;
use crate::units::{ByteSize, Gpa};

/// Archives begin at a multiple of this.
const ALIGNMENT: u64 = 4;

/// One piece of an initrd.
#[derive(Debug)]
pub enum InitrdPart<'a> {
    /// A whole file, read straight into guest memory.
    File(&'a mut File),
    /// Bytes made by us.
    Bytes(&'a [u8]),
}

impl InitrdPart<'_> {
    fn len(&mut self) -> Result<u64, BootError> {
        match self {
            Self::File(file) => file.seek(SeekFrom::End(0)).map_err(BootError::InitrdUnreadable),
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    fn load(&mut self, memory: &GuestMemoryMmap, at: u64, len: u64) -> Result<(), BootError> {
        match self {
            Self::Bytes(bytes) => Ok(memory.write_slice(bytes, GuestAddress(at))?),
            Self::File(file) => {
                file.rewind().map_err(BootError::InitrdUnreadable)?;
                let count = usize::try_from(len).map_err(|_| BootError::InitrdTruncated)?;
                let read = memory.read_exact_volatile_from(GuestAddress(at), *file, count);
                read.map_err(|error| match error {
                    GuestMemoryError::IOError(e) if e.kind() == ErrorKind::UnexpectedEof => {
                        BootError::InitrdTruncated
                    }
                    GuestMemoryError::IOError(e) => BootError::InitrdUnreadable(e),
                    GuestMemoryError::PartialBuffer { .. } => BootError::InitrdTruncated,
                    other => BootError::Memory(other),
                })
            }
        }
    }
}

/// Loads all parts so that they end in the last pages of `room`, and says where.
/// `None` when there is nothing to load.
pub(super) fn load(
    parts: &mut [InitrdPart<'_>],
    memory: &GuestMemoryMmap,
    room: Range<Gpa>,
) -> Result<Option<Range<Gpa>>, BootError> {
    let lengths = parts.iter_mut().map(InitrdPart::len).collect::<Result<Vec<_>, _>>()?;
    let padded = |len: &u64| len.checked_next_multiple_of(ALIGNMENT);
    let total = lengths.iter().try_fold(0_u64, |sum, len| sum.checked_add(padded(len)?));
    let total = total.unwrap_or(u64::MAX);
    if total == 0 {
        return Ok(None);
    }
    let too_large = BootError::InitrdTooLarge { size: ByteSize(total) };
    let start = match room.end.0.checked_sub(total) {
        Some(start) if start / PAGE_SIZE * PAGE_SIZE >= room.start.0 => {
            start / PAGE_SIZE * PAGE_SIZE
        }
        _ => return Err(too_large),
    };
    let mut at = start;
    for (part, len) in parts.iter_mut().zip(&lengths) {
        part.load(memory, at, *len)?;
        // Bytes of ours may end within an entry that the next part goes on with.
        if matches!(part, InitrdPart::File(_)) && !newc::is_whole(memory, at..at + len) {
            return Err(BootError::InitrdTruncated);
        }
        // Fresh memory is zero: padding needs no writing.
        at += len.next_multiple_of(ALIGNMENT);
    }
    Ok(Some(Gpa(start)..Gpa(at)))
}
