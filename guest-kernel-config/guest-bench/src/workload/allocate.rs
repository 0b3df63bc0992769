//! Allocate, copy, search: the pattern of a loaded web server, after ebizzy. Every copy is
//! mapped, faulted in page by page, and unmapped, all under the locks of one address space.

use std::io;

use super::Workload;
use crate::{crew, mapping::Mapping};

/// Bytes of a chunk.
const BYTES: usize = 64 << 10;
/// Number of chunks, which are copied in turn.
const CHUNKS: usize = 8;

pub const WORKLOAD: Workload = Workload {
    name: "allocate",
    about: "one thread per CPU maps 64 KiB, copies a table there, searches and unmaps it (like ebizzy)",
    run: |_, options| {
        let part = crew::repeat(
            options,
            || ((0..CHUNKS).map(sorted_chunk).collect::<Vec<_>>(), 0),
            |(chunks, searches)| {
                search(&chunks[*searches % CHUNKS], *searches as u8)?;
                *searches += 1;
                Ok(())
            },
        )?;
        Ok(vec![part])
    },
    each: None,
};

/// Sorted bytes, which differ between chunks.
fn sorted_chunk(chunk: usize) -> Vec<u8> {
    (0..BYTES).map(|place| ((place + chunk) * 256 / (BYTES + CHUNKS)) as u8).collect()
}

/// Searches a copy of `chunk`. Fails if the copy is not sorted.
fn search(chunk: &[u8], wanted: u8) -> io::Result<()> {
    let mut mapping = Mapping::new(chunk.len())?;
    let copy = mapping.bytes();
    copy.copy_from_slice(chunk);
    let place = copy.partition_point(|number| *number < wanted);
    let is_right = copy.get(place).is_none_or(|number| *number >= wanted);
    if is_right { Ok(()) } else { Err(io::Error::other("a copy is not sorted")) }
}
