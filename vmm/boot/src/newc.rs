//! Checks whether a cpio archive is complete, in guest memory after loading.
//!
//! The kernel unpacks the available part of a truncated initramfs and continues without the rest,
//! so the error would show up as another failure, far from its cause.

use std::ops::Range;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap, bitmap::Bitmap};

/// "newc" with and without checksums (cpio(5)), the formats that Linux accepts.
const MAGIC: [[u8; 6]; 2] = [*b"070701", *b"070702"];
/// Bytes of the magic and thirteen numbers of eight hexadecimal digits each.
const HEADER: usize = 6 + 13 * 8;
const FILE_SIZE: usize = 6 + 6 * 8;
const NAME_SIZE: usize = 6 + 11 * 8;
/// Name of the entry that ends an archive, including its NUL.
const TRAILER: [u8; 11] = *b"TRAILER!!!\0";

/// Returns false if an uncompressed archive begins at the start of `range` and ends within an
/// entry. Returns true otherwise; other data (compressed archives, zeros) cannot be checked.
pub(super) fn is_complete(memory: &GuestMemoryMmap<impl Bitmap>, range: Range<u64>) -> bool {
    let mut at = range.start;
    while at < range.end {
        match entry(memory, at..range.end) {
            ArchiveEntry::File { next } => at = next,
            ArchiveEntry::Trailer => return true,
            ArchiveEntry::Truncated => return false,
            // No archive at all, or data between two archives.
            ArchiveEntry::Foreign => return true,
        }
    }
    // The archive ends with a complete file. Linux does not require the trailer.
    at == range.end || range.is_empty()
}

enum ArchiveEntry {
    File { next: u64 },
    Trailer,
    Truncated,
    Foreign,
}

fn entry(memory: &GuestMemoryMmap<impl Bitmap>, room: Range<u64>) -> ArchiveEntry {
    let mut header = [0; HEADER];
    let available = (room.end - room.start).min(HEADER as u64) as usize;
    if memory.read_slice(&mut header[..available], GuestAddress(room.start)).is_err() {
        return ArchiveEntry::Truncated;
    }
    if available < MAGIC[0].len() || !MAGIC.iter().any(|magic| header.starts_with(magic)) {
        return ArchiveEntry::Foreign;
    }
    if available < HEADER {
        return ArchiveEntry::Truncated;
    }
    let (Some(name_size), Some(file_size)) =
        (number(&header, NAME_SIZE), number(&header, FILE_SIZE))
    else {
        return ArchiveEntry::Foreign;
    };
    let name_at = room.start + HEADER as u64;
    let mut name = [0; TRAILER.len()];
    if name_size == TRAILER.len() as u64
        && name_at + name_size <= room.end
        && memory.read_slice(&mut name, GuestAddress(name_at)).is_ok()
        && name == TRAILER
    {
        return ArchiveEntry::Trailer;
    }
    // Name and file each end at a multiple of four from the start of the archive, which is aligned
    // itself. The last padding may be missing from the archive.
    let file_at = (name_at + name_size).next_multiple_of(4);
    match file_at + file_size {
        end if end > room.end => ArchiveEntry::Truncated,
        end => ArchiveEntry::File { next: end.next_multiple_of(4).min(room.end) },
    }
}

/// Parses eight hexadecimal digits.
fn number(header: &[u8; HEADER], at: usize) -> Option<u64> {
    let digits = std::str::from_utf8(header.get(at..at + 8)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::test_fixtures::{guest, newc_file as file};
    use super::*;

    fn is_complete_archive(archive: &[u8]) -> bool {
        let memory = guest(1);
        memory.write_slice(archive, GuestAddress(0x1000)).unwrap();
        is_complete(&memory, 0x1000..0x1000 + archive.len() as u64)
    }

    #[test]
    fn archives_end_at_the_trailer_or_after_a_file() {
        let files = [file("init", b"#!/bin/sh\n"), file("etc/a", &[1; 301])].concat();
        let trailer = file("TRAILER!!!", b"");
        assert!(is_complete_archive(&files));
        assert!(is_complete_archive(&[&files[..], &trailer].concat()));
        assert!(is_complete_archive(&[&files[..], &trailer, &[0; 512], b"\x1f\x8b"].concat()));
    }

    #[test]
    fn truncation_within_a_file_is_detected() {
        let files = [file("init", b"#!/bin/sh\n"), file("etc/a", &[1; 301])].concat();
        let first = file("init", b"#!/bin/sh\n").len();
        for length in first + 6..files.len() - 3 {
            assert!(!is_complete_archive(&files[..length]), "{length}");
        }
    }

    #[test]
    fn other_formats_count_as_complete() {
        for foreign in [&b""[..], b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", &[0; 64], b"07070"] {
            assert!(is_complete_archive(foreign), "{foreign:x?}");
        }
    }

    #[test]
    fn hostile_sizes_do_no_harm() {
        let archive = file("init", &[0; 64]);
        for at in (6..HEADER).step_by(8) {
            for digits in [b"ffffffff", b"00000000", b"7fffffff", b"-1234567", b"zzzzzzzz"] {
                let mut bad = archive.clone();
                bad[at..at + 8].copy_from_slice(digits);
                is_complete_archive(&bad);
            }
        }
    }
}
