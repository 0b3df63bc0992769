//! Checks that the guest's memory can hold the databases. They are in its root file system, which
//! is memory too.

use std::{fs, io, path::Path};

use crate::{TableError, options::TableOptions};

/// Bytes of a database's tables and indexes per unit of scale (measured: 14.5 MiB).
const SCALE: u64 = 16 << 20;
/// Bytes of an empty database: its catalogues, copied from the template.
const EMPTY: u64 = 8 << 20;
/// Bytes that the server writes in addition: its log and temporary files.
const BESIDE: u64 = 32 << 20;
/// Private bytes of a client's server process (measured: 1.2 MiB).
const CLIENT: u64 = 2 << 20;
/// Bytes of shared buffers per byte of page tables, which every process has for them.
const PAGES: u64 = 4096 / 8;
/// Bytes of the server's own processes and structures.
const SERVER: u64 = 48 << 20;

/// Shared buffers in MiB: 32 MiB per unit of scale, as in 2012 (32 MiB for scale 1, 16 GiB for
/// scale 500).
pub fn shared_buffers_mib(options: &TableOptions) -> u32 {
    32 * options.scales.iter().max().copied().unwrap_or(1)
}

/// Memory that exists and memory that is needed, in bytes.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// All memory.
    total: u64,
    /// The available part of it.
    available: u64,
    /// Free space in the file system; None: it has no limit.
    files: Option<u64>,
}

/// Refuses a run for which the guest has too little memory; the message says how much it needs.
pub fn check(options: &TableOptions, folder: &Path) -> Result<(), TableError> {
    let room = Room::of(&fs::read_to_string("/proc/meminfo")?, folder)?;
    room.wanted_mib(options).map_or(Ok(()), |mib| {
        Err(TableError::Usage(format!(
            "these databases and clients need more memory: boot with --mem {mib}M or more, \
             or choose smaller --scales"
        )))
    })
}

impl Room {
    fn of(meminfo: &str, folder: &Path) -> io::Result<Self> {
        let files = rustix::fs::statvfs(folder)?;
        Ok(Self {
            total: bytes_of(meminfo, "MemTotal:")?,
            available: bytes_of(meminfo, "MemAvailable:")?,
            files: (files.f_blocks > 0).then_some(files.f_bavail * files.f_frsize),
        })
    }

    /// The memory that the machine would need; None if its own suffices.
    fn wanted_mib(&self, options: &TableOptions) -> Option<u64> {
        /// Sizes are rounded up to this many MiB.
        const STEP: u64 = 256;
        let scales: u64 = options.scales.iter().map(|scale| u64::from(*scale)).sum();
        let tables = scales * SCALE;
        let files = tables + options.scales.len() as u64 * EMPTY + BESIDE;
        let buffers = tables.min(u64::from(shared_buffers_mib(options)) << 20);
        let clients = u64::from(options.clients.iter().max().copied().unwrap_or(1));
        let clients = clients * (CLIENT + buffers / PAGES);
        let memory = files + buffers + clients + SERVER;
        // A tmpfs takes half of the memory by default
        // (Documentation/filesystems/tmpfs.rst).
        let short_of_files = 2 * self.files.map_or(0, |free| files.saturating_sub(free));
        let short = memory.saturating_sub(self.available).max(short_of_files);
        // The kernel keeps some for itself: a little more than this share of the machine's memory.
        let machine = (self.total + short) / 16 * 17;
        (short > 0).then(|| (machine >> 20).next_multiple_of(STEP))
    }
}

/// A line of `/proc/meminfo`: a name and kilobytes.
fn bytes_of(meminfo: &str, name: &str) -> io::Result<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other(format!("/proc/meminfo has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn options(scales: &[u32], clients: u32) -> TableOptions {
        TableOptions { scales: scales.into(), clients: vec![1, clients], ..TableOptions::default() }
    }

    #[test]
    fn lines_of_meminfo_are_in_kilobytes() {
        let text = "MemTotal:        1000 kB\nMemFree:  1 kB\nMemAvailable:     7 kB\n";
        assert_eq!(bytes_of(text, "MemAvailable:").unwrap(), 7 << 10);
        assert!(bytes_of("", "MemTotal:").is_err());
    }

    #[test]
    fn buffers_grow_with_the_largest_scale() {
        assert_eq!(shared_buffers_mib(&options(&[1, 10], 1)), 320);
        assert_eq!(shared_buffers_mib(&options(&[500], 1)), 16_000);
    }

    #[test]
    fn what_fits_is_let_through() {
        let room = Room { total: 980 * MIB, available: 850 * MIB, files: Some(380 * MIB) };
        assert_eq!(room.wanted_mib(&options(&[1, 10], 64)), None);
        assert_eq!(Room { files: None, ..room }.wanted_mib(&options(&[1, 10], 64)), None);
    }

    #[test]
    fn either_shortage_is_told() {
        let room = Room { total: 980 * MIB, available: 850 * MIB, files: Some(380 * MIB) };
        let mib = room.wanted_mib(&options(&[100], 64)).unwrap();
        assert!(mib > 3 * 1024 && mib.is_multiple_of(256), "{mib}");
        assert!(room.wanted_mib(&options(&[1], 1000)).unwrap() > 2 * 1024);
    }
}
