//! Recognises files that are not kernels, or archives that no kernel unpacks, by their first bytes, so that
//! errors can suggest a fix.

use std::fmt;

/// Number of bytes that [`FileKind::detect`] examines: up to the end of a tar archive's magic number.
pub const HEAD: usize = 262;

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip, also in version 0.5's format.
    Gzip,
    /// bzip2.
    Bzip2,
    /// LZMA (`.lzma`).
    Lzma,
    /// xz.
    Xz,
    /// lzop.
    Lzo,
    /// LZ4 in the format that Linux unpacks.
    Lz4,
    /// LZ4 in frames, which Linux does not unpack.
    Lz4Frame,
    /// Zstandard.
    Zstd,
}

/// Magic numbers (from lib/decompress.c of the kernel, except LZ4 frames).
const COMPRESSIONS: [(&[u8], Compression); 9] = [
    (b"\x1f\x8b", Compression::Gzip),
    (b"\x1f\x9e", Compression::Gzip),
    (b"BZh", Compression::Bzip2),
    (b"\x5d\0\0", Compression::Lzma),
    (b"\xfd7zXZ\0", Compression::Xz),
    (b"\x89LZO", Compression::Lzo),
    (b"\x02\x21\x4c\x18", Compression::Lz4),
    (b"\x04\x22\x4d\x18", Compression::Lz4Frame),
    (b"\x28\xb5\x2f\xfd", Compression::Zstd),
];

impl Compression {
    /// Returns the compression of a file that begins with these bytes.
    pub fn detect(head: &[u8]) -> Option<Self> {
        let entry = COMPRESSIONS.iter().find(|(magic, _)| head.starts_with(magic));
        entry.map(|(_, compression)| *compression)
    }

    /// Returns the command that decompresses such a file to stdout.
    pub const fn unpacker(self) -> &'static str {
        match self {
            Self::Gzip => "gzip -dc",
            Self::Bzip2 => "bzip2 -dc",
            Self::Lzma | Self::Xz => "xz -dc",
            Self::Lzo => "lzop -dc",
            Self::Lz4 | Self::Lz4Frame => "lz4 -dc",
            Self::Zstd => "zstd -dc",
        }
    }

    /// Returns the kernel configuration option for decompressing such a RAM disk. None: no kernel can.
    pub const fn kernel_option(self) -> Option<&'static str> {
        match self {
            Self::Gzip => Some("CONFIG_RD_GZIP"),
            Self::Bzip2 => Some("CONFIG_RD_BZIP2"),
            Self::Lzma => Some("CONFIG_RD_LZMA"),
            Self::Xz => Some("CONFIG_RD_XZ"),
            Self::Lzo => Some("CONFIG_RD_LZO"),
            Self::Lz4 => Some("CONFIG_RD_LZ4"),
            Self::Zstd => Some("CONFIG_RD_ZSTD"),
            Self::Lz4Frame => None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Lzma => "lzma",
            Self::Xz => "xz",
            Self::Lzo => "lzo",
            Self::Lz4 => "lz4",
            Self::Lz4Frame => "lz4, as a frame",
            Self::Zstd => "zstd",
        })
    }
}

/// Kind of a file that users mistake for a kernel or a RAM disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A compressed file.
    Compressed(Compression),
    /// A `newc` cpio archive (cpio(5)), the format of initial RAM disks.
    Newc,
    /// A cpio archive in another format, which Linux does not unpack.
    OtherCpio,
    /// A tar archive.
    Tar,
    /// A Debian package.
    Deb,
    /// An RPM package.
    Rpm,
    /// A UEFI program that is not a bzImage, for example a unified kernel image.
    Efi,
    /// An arm64 kernel (Documentation/arch/arm64/booting.rst).
    ArmImage,
    /// An image for U-Boot.
    UBoot,
    /// A script.
    Script,
}

impl FileKind {
    /// Returns the kind of a file that begins with these bytes. None: unknown.
    pub fn detect(head: &[u8]) -> Option<Self> {
        /// Offset of each magic number, and the number.
        const MAGICS: [(usize, &[u8], FileKind); 12] = [
            (0, b"070701", FileKind::Newc),
            (0, b"070702", FileKind::Newc),
            (0, b"070707", FileKind::OtherCpio),
            (0, b"\xc7\x71", FileKind::OtherCpio),
            (0, b"\x71\xc7", FileKind::OtherCpio),
            (257, b"ustar", FileKind::Tar),
            (0, b"!<arch>\ndebian-binary", FileKind::Deb),
            (0, b"\xed\xab\xee\xdb", FileKind::Rpm),
            (56, b"ARM\x64", FileKind::ArmImage),
            (0, b"MZ", FileKind::Efi),
            (0, b"\x27\x05\x19\x56", FileKind::UBoot),
            (0, b"#!", FileKind::Script),
        ];
        let has_magic =
            |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
        let by_magic = || MAGICS.iter().find(|(at, magic, _)| has_magic(*at, magic));
        let compressed = Compression::detect(head).map(Self::Compressed);
        compressed.or_else(|| by_magic().map(|(_, _, kind)| *kind))
    }

    /// Returns advice for a user who passed such a file as a kernel.
    pub const fn kernel_advice(self) -> KernelAdvice {
        KernelAdvice(self)
    }
}

/// Displays the advice of [`FileKind::kernel_advice`].
#[derive(Debug, Clone, Copy)]
pub struct KernelAdvice(FileKind);

impl fmt::Display for KernelAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            FileKind::Compressed(compression) => {
                return write!(f, "a file compressed with {compression}: unpack it first (`{}`)", compression.unpacker());
            }
            FileKind::Newc | FileKind::OtherCpio => "a cpio archive: use --initrd for a RAM disk",
            FileKind::Tar => "a tar archive: extract the kernel from it (`tar -x`)",
            FileKind::Deb => {
                "a Debian package: extract the kernel, boot/vmlinuz-*, from it (`dpkg -x`)"
            }
            FileKind::Rpm => "an RPM package: extract the kernel from it (`rpm2cpio`)",
            FileKind::Efi => {
                "a UEFI program, not a bzImage: extract the section .linux from a unified kernel image \
                 (`objcopy -O binary --only-section=.linux`)"
            }
            FileKind::ArmImage => "a kernel for ARM: an x86-64 kernel is required",
            FileKind::UBoot => "an image for U-Boot: use the vmlinux or bzImage it was made from",
            FileKind::Script => "a script",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(head: &[u8]) -> Option<String> {
        FileKind::detect(head).map(|kind| kind.kernel_advice().to_string())
    }

    #[test]
    fn files_are_recognised_with_advice() {
        for (head, part) in [
            (&b"\x1f\x8b\x08"[..], "`gzip -dc`"),
            (b"BZh91AY", "`bzip2 -dc`"),
            (b"\xfd7zXZ\0\0", "a file compressed with xz: "),
            (b"\x5d\0\0\x80", "compressed with lzma: "),
            (b"\x02\x21\x4c\x18", "compressed with lz4: "),
            (b"\x04\x22\x4d\x18", "`lz4 -dc`"),
            (b"\x28\xb5\x2f\xfd", "`zstd -dc`"),
            (b"\x89LZO\0", "`lzop -dc`"),
            (b"070701", "--initrd"),
            (b"!<arch>\ndebian-binary   1", "`dpkg -x`"),
            (b"\xed\xab\xee\xdb\x03", "`rpm2cpio`"),
            (b"MZ\x90\0", ".linux"),
            (b"#!/bin/sh\n", "a script"),
        ] {
            let text = advice(head).unwrap_or_default();
            assert!(text.contains(part), "{head:x?}: {text}");
        }
        let at = |offset: usize, magic: &[u8]| [&vec![0; offset], magic].concat();
        assert!(advice(&at(257, b"ustar\0")).is_some_and(|text| text.contains("tar -x")));
        assert!(advice(&at(56, b"ARM\x64")).is_some_and(|text| text.contains("x86-64")));
        for unknown in [&b""[..], b"\x1f", b"0707", &[0; HEAD], b"!<arch>\n", b"\x7fELF\x02\x01"] {
            assert_eq!(FileKind::detect(unknown), None, "{unknown:x?}");
        }
    }
}
