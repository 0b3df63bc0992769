//! Checks whether a kernel can unpack a file as its initial RAM disk. Without the check, the kernel reports a failure
//! only on its console and panics for lack of an init: far from the cause, and after an emulated host has started.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use base::{files, units::ByteSize};
use boot::kind::{Compression, FileKind, HEAD};
use thiserror::Error;

/// The reason why a file is not usable as a RAM disk.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum UnpackError {
    /// The file cannot be read.
    #[error("initrd: cannot read {path}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// No kernel unpacks this format.
    #[error(
        "initrd: {0} is a cpio archive in a format that Linux does not support: create it with `cpio -o -H newc`"
    )]
    OtherCpio(PathBuf),
    /// No kernel supports this compression.
    #[error(
        "initrd: {path} is compressed with {format}, which Linux does not support: use `lz4 -l`"
    )]
    UnsupportedFormat { path: PathBuf, format: Compression },
    /// This kernel does not support this compression.
    #[error(
        "initrd: {path} is compressed with {format}, which the kernel {kernel} does not support: it was built without {option}; \
         unpack the file first (`{}`), or rebuild the kernel (ours: `pvticket setup kernel`)",
        format.unpacker()
    )]
    MissingOption { path: PathBuf, format: Compression, kernel: PathBuf, option: &'static str },
    /// The file has an unknown format.
    #[error(
        "initrd: {0} is not an initial RAM disk, neither a newc cpio archive nor in a compression that Linux supports: \
         create one with `find . | cpio -o -H newc`"
    )]
    UnknownFormat(PathBuf),
}

/// Rejects, by its first bytes, a file that this kernel would reject. The loader checks that uncompressed
/// archives are complete.
pub(super) fn check(file: &Path, kernel: &Path) -> Result<(), UnpackError> {
    let format = match FileKind::detect(&head(file)?) {
        Some(FileKind::Newc) => return Ok(()),
        Some(FileKind::OtherCpio) => return Err(UnpackError::OtherCpio(file.into())),
        Some(FileKind::Compressed(format)) => format,
        _ => return Err(UnpackError::UnknownFormat(file.into())),
    };
    let Some(option) = format.kernel_option() else {
        return Err(UnpackError::UnsupportedFormat { path: file.into(), format });
    };
    if lacks(kernel, option) {
        let (path, kernel) = (file.into(), kernel.into());
        Err(UnpackError::MissingOption { path, format, kernel, option })
    } else {
        Ok(())
    }
}

fn head(file: &Path) -> Result<Vec<u8>, UnpackError> {
    let mut head = Vec::new();
    let result = File::open(file).and_then(|open| open.take(HEAD as u64).read_to_end(&mut head));
    match result {
        Ok(_) => Ok(head),
        Err(source) => Err(UnpackError::Unreadable { path: file.into(), source }),
    }
}

/// Far larger than any configuration.
const MAX_CONFIG: ByteSize = ByteSize::mib(4);

/// Whether this kernel is built without this option. Only a configuration shows this: `config` next to the
/// kernel in our cache, `config-VERSION` in /boot, or `.config` at the top of a build tree.
fn lacks(kernel: &Path, option: &str) -> bool {
    let Some(config) = configs(kernel).find_map(|file| config(&file)) else { return false };
    let line = format!("{option}=y");
    config.lines().all(|set| set != line)
}

/// Returns the possible paths of a kernel's configuration.
fn configs(kernel: &Path) -> impl Iterator<Item = PathBuf> {
    let name = kernel.file_name().unwrap_or_default().to_string_lossy();
    let adjacent = match name.split_once('-') {
        Some((_, version)) => kernel.with_file_name(format!("config-{version}")),
        None => kernel.with_file_name("config"),
    };
    let folder = files::folder(kernel);
    // In a build tree, bzImage is below the top and vmlinux at the top.
    let top =
        if folder.ends_with("arch/x86/boot") { folder.join("../../..") } else { folder.to_owned() };
    [adjacent, top.join(".config")].into_iter()
}

/// Reads a kernel's configuration, or returns None if this is not such a file.
fn config(file: &Path) -> Option<String> {
    let text = files::read_text(file, MAX_CONFIG).ok()?;
    text.lines().any(|line| line.starts_with("CONFIG_")).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn rejection(bytes: &[u8], kernel: &Path) -> String {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("initrd");
        fs::write(&file, bytes).unwrap();
        check(&file, kernel).map_or_else(|error| error.to_string(), |()| String::new())
    }

    const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd rest";

    #[test]
    fn identifies_files_by_their_first_bytes() {
        let any = Path::new("/no/kernel");
        for good in [&b"070701rest"[..], b"070702", b"\x1f\x8b\x08rest", b"\x02\x21\x4c\x18", ZSTD]
        {
            assert_eq!(rejection(good, any), "");
        }
        for bad in [&b""[..], b"0707", &[0; 4096], b"\x7fELF\x02\x01", b"#!/bin/sh\n"] {
            assert!(rejection(bad, any).contains("is not an initial RAM disk"), "{bad:x?}");
        }
        assert!(rejection(b"\x04\x22\x4d\x18", any).ends_with("use `lz4 -l`"));
        for odd in [&b"070707rest"[..], b"\xc7\x71\0\0", b"\x71\xc7\0\0"] {
            assert!(rejection(odd, any).ends_with("`cpio -o -H newc`"), "{odd:x?}");
        }
    }

    /// Regression: a kernel without the format panicked, and the boot was reported as a success.
    #[test]
    fn checks_the_configuration_next_to_the_kernel() {
        let folder = TempDir::new().unwrap();
        let [ours, debians] =
            ["vmlinux", "vmlinuz-6.1.0-1-amd64"].map(|name| folder.path().join(name));
        assert_eq!(rejection(ZSTD, &ours), "", "it has no configuration");
        let without = "CONFIG_RD_GZIP=y\n# CONFIG_RD_ZSTD is not set\n";
        fs::write(folder.path().join("config"), without).unwrap();
        let reason = rejection(ZSTD, &ours);
        assert!(
            reason.contains("built without CONFIG_RD_ZSTD") && reason.contains("`zstd -dc`"),
            "{reason}"
        );
        assert_eq!(rejection(b"\x1f\x8b\x08", &ours), "");
        assert_eq!(rejection(ZSTD, &debians), "");
        fs::write(folder.path().join("config-6.1.0-1-amd64"), without).unwrap();
        assert!(rejection(ZSTD, &debians).contains("vmlinuz-6.1.0-1-amd64 does not support"));
        fs::write(folder.path().join("config"), "CONFIG_RD_ZSTD=y\n").unwrap();
        assert_eq!(rejection(ZSTD, &ours), "");
    }

    /// Regression: any file named `config` led to rejections, and a build tree's configuration was not read.
    #[test]
    fn ignores_files_that_are_not_configurations() {
        let folder = TempDir::new().unwrap();
        let boot = folder.path().join("arch/x86/boot");
        fs::create_dir_all(&boot).unwrap();
        let kernels = [folder.path().join("vmlinux"), boot.join("bzImage")];
        fs::write(folder.path().join("config"), "[core]\n\tbare = false\n").unwrap();
        assert_eq!(rejection(ZSTD, &kernels[0]), "");
        fs::write(folder.path().join(".config"), "CONFIG_RD_GZIP=y\n").unwrap();
        for kernel in &kernels {
            assert!(rejection(ZSTD, kernel).contains("without CONFIG_RD_ZSTD"), "{kernel:?}");
            assert_eq!(rejection(b"\x1f\x8b\x08", kernel), "");
        }
    }
}
