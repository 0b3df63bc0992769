//! Files that `make` builds or fetches: the cache directory and the paths in it.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A file that is missing. Each message says how to get it.
#[derive(Debug, Error)]
pub enum ArtifactError {
    /// Neither a cache directory nor a home is known.
    #[error("no place for the cache: set HOME, XDG_CACHE_HOME or PVTICKET_CACHE")]
    NoCache,
    /// `pvticket setup kernel` has not run.
    #[error(
        "no PV ticketlock kernel at {0}: run `pvticket setup kernel`, or name one with --kernel"
    )]
    Kernel(PathBuf),
    /// `pvticket setup kernel-stock` has not run.
    #[error(
        "no kernel with stock spinlocks at {0}: run `pvticket setup kernel-stock`, or name one with \
         --stock-kernel"
    )]
    StockKernel(PathBuf),
    /// `pvticket setup busybox` has not run.
    #[error("no static busybox at {0}: run `pvticket setup busybox`")]
    Busybox(PathBuf),
    /// `pvticket setup guest-disk` has not run.
    #[error("no guest disk with PostgreSQL at {0}: run `pvticket setup guest-disk`")]
    GuestDisk(PathBuf),
}

/// Path of [`built_kernel`] in the cache.
pub const KERNEL: &str = "kernel/current/vmlinux";

/// Path of [`stock_kernel`] in the cache.
pub const STOCK_KERNEL: &str = "kernel/stock-pvqspinlock/vmlinux";

/// The directory of everything built and fetched: `$PVTICKET_CACHE`, or else `pvticket` in
/// `$XDG_CACHE_HOME` or in `~/.cache`.
pub fn cache_dir() -> Result<PathBuf, ArtifactError> {
    cache_dir_from(|name| env::var_os(name))
}

fn cache_dir_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, ArtifactError> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    path("PVTICKET_CACHE")
        .or_else(|| path("XDG_CACHE_HOME").map(|dir| dir.join("pvticket")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/pvticket")))
        .ok_or(ArtifactError::NoCache)
}

/// The guest kernel with PV ticketlocks: the ELF `vmlinux` of `pvticket setup kernel`.
pub fn built_kernel() -> Result<PathBuf, ArtifactError> {
    let file = cache_dir()?.join(KERNEL);
    if file.is_file() { Ok(file) } else { Err(ArtifactError::Kernel(file)) }
}

/// The kernel to compare with, with mainline's spinlocks: the ELF `vmlinux` of `pvticket setup kernel-stock`.
pub fn stock_kernel() -> Result<PathBuf, ArtifactError> {
    let file = cache_dir()?.join(STOCK_KERNEL);
    if file.is_file() { Ok(file) } else { Err(ArtifactError::StockKernel(file)) }
}

/// A static busybox for the guest: from the cache, or else this system's own if it is static.
pub fn busybox() -> Result<PathBuf, ArtifactError> {
    let cached = cache_dir()?.join("busybox/busybox");
    let places = [cached.clone(), "/usr/bin/busybox".into(), "/bin/busybox".into()];
    places.into_iter().find(|file| is_static(file)).ok_or(ArtifactError::Busybox(cached))
}

/// Path of the guest disk in the cache.
pub const GUEST_DISK: &str = "guest-disk/current/root.cpio";

/// The archive with PostgreSQL for the guest's root, from `pvticket setup guest-disk`.
pub fn guest_disk() -> Result<PathBuf, ArtifactError> {
    let file = cache_dir()?.join(GUEST_DISK);
    if file.is_file() { Ok(file) } else { Err(ArtifactError::GuestDisk(file)) }
}

/// Is it an ELF file for x86-64 without a dynamic loader?
pub fn is_static(file: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(file).and_then(|file| file.take(4096).read_to_end(&mut head));
    read.is_ok() && has_no_interpreter(&head)
}

/// Looks for PT_INTERP among the program headers, which follow the ELF header in the first page.
fn has_no_interpreter(head: &[u8]) -> bool {
    const ELF64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
    const MACHINE_X86_64: u64 = 62;
    const PT_INTERP: u64 = 3;
    let field = |at: usize, size: usize| {
        let bytes = head.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let kinds = || {
        let (start, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
        (0..count)
            .map(|index: u64| {
                let at = start.checked_add(index.checked_mul(size)?)?;
                field(usize::try_from(at).ok()?, 4)
            })
            .collect::<Option<Vec<_>>>()
    };
    head.starts_with(ELF64_LITTLE_ENDIAN)
        && field(18, 2) == Some(MACHINE_X86_64)
        && kinds().is_some_and(|kinds| !kinds.contains(&PT_INTERP))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cache(set: &[(&str, &str)]) -> Option<PathBuf> {
        cache_dir_from(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
        .ok()
    }

    #[test]
    fn the_cache_is_where_the_environment_says() {
        let all = [("PVTICKET_CACHE", "/p"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(cache(&all), Some("/p".into()));
        assert_eq!(cache(&all[1..]), Some("/x/pvticket".into()));
        assert_eq!(cache(&all[2..]), Some("/h/.cache/pvticket".into()));
        assert_eq!(cache(&[("PVTICKET_CACHE", ""), ("HOME", "/h")]), cache(&all[2..]));
        assert_eq!(cache(&[]), None);
    }

    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut head = vec![0; 64 + 56 * kinds.len()];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[18] = 62;
        head[32] = 64;
        head[54] = 56;
        head[56] = kinds.len() as u8;
        for (index, kind) in kinds.iter().enumerate() {
            head[64 + index * 56..][..4].copy_from_slice(&kind.to_le_bytes());
        }
        head
    }

    #[test]
    fn static_means_no_interpreter() {
        assert!(has_no_interpreter(&elf(&[1, 1, 2])));
        assert!(!has_no_interpreter(&elf(&[6, 3, 1])));
        assert!(!has_no_interpreter(&elf(&[1])[..66]), "cut short");
        assert!(!has_no_interpreter(b"#!/bin/sh\n"));
    }

    proptest! {
        #[test]
        fn no_elf_header_makes_us_panic(
            changes in prop::collection::vec((0..64_usize, any::<u8>()), 0..9),
            start in prop::sample::select(vec![0, 64, u64::MAX - 64, u64::MAX]),
            cut in 0..200_usize,
        ) {
            let mut head = elf(&[1, 2]);
            head[32..40].copy_from_slice(&start.to_le_bytes());
            for (at, byte) in changes {
                head[at] = byte;
            }
            head.truncate(cut);
            has_no_interpreter(&head);
        }

        #[test]
        fn no_bytes_of_a_program_make_us_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            has_no_interpreter(&[b"\x7fELF\x02\x01", &bytes[..]].concat());
        }
    }

    #[test]
    fn this_test_is_built_as_the_product_is() {
        let own = env::current_exe().expect("own path");
        assert_eq!(is_static(&own), cfg!(target_feature = "crt-static"));
    }
}
