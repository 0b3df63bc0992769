//! A writer of `newc` cpio archives, the format of a Linux initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel).
//!
//! The archive is streamed into any [`Write`], so large files are not copied into memory. Equal
//! calls produce equal bytes: owner root, time stamp 0, inode numbers counted from 1.

use std::io::{self, Read, Write};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const TRAILER: &str = "TRAILER!!!";

/// An archive cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum CpioError {
    /// The output fails.
    #[error("cannot write the cpio archive")]
    Write(#[source] io::Error),
    /// The source of an entry's contents fails.
    #[error("cannot read `{path}` for the cpio archive")]
    Read { path: String, source: io::Error },
    /// A source was shorter than its announced length, already written to the header.
    #[error("`{path}` has {actual} bytes, not the {expected} expected")]
    Length { path: String, expected: u64, actual: u64 },
    /// The format's size field has 32 bits.
    #[error("`{path}` has {size} bytes; a cpio archive holds files below 4 GiB")]
    TooBig { path: String, size: u64 },
    /// The kernel would not unpack the path unchanged.
    #[error("`{0}` is not a valid cpio name: use a relative, non-empty name without NUL bytes")]
    Name(String),
}

/// A `newc` archive under construction. Directories must be added before their contents: the kernel
/// creates no directory that the archive does not name.
///
/// ```
/// # use boot::cpio::{Archive, CpioError};
/// # fn main() -> Result<(), CpioError> {
/// let mut archive = Archive::new(Vec::new());
/// archive.directory("dev", 0o755)?;
/// archive.character_device("dev/console", 0o600, 5, 1)?;
/// archive.file("init", 0o755, b"#!/bin/sh\n")?;
/// archive.symlink("linuxrc", "init")?;
/// let bytes: Vec<u8> = archive.finish()?;
/// # assert_eq!(bytes.len() % 4, 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Archive<W: Write> {
    out: W,
    last_inode: u32,
}

struct Header {
    inode: u32,
    mode: u32,
    links: u32,
    size: u32,
    device: (u32, u32),
}

impl<W: Write> Archive<W> {
    /// Creates an empty archive, written to `out` as entries are added.
    pub fn new(out: W) -> Self {
        Self { out, last_inode: 0 }
    }

    /// Adds a directory. `permissions` are the low twelve mode bits, here and below.
    pub fn directory(&mut self, path: &str, permissions: u32) -> Result<(), CpioError> {
        self.entry(path, DIRECTORY | permissions, 2, &[], (0, 0))
    }

    /// Adds a regular file whose contents are in memory.
    pub fn file(&mut self, path: &str, permissions: u32, bytes: &[u8]) -> Result<(), CpioError> {
        self.entry(path, REGULAR | permissions, 1, bytes, (0, 0))
    }

    /// Adds a regular file by copying exactly `size` bytes from `from`, which may have more.
    pub fn file_from(
        &mut self,
        path: &str,
        permissions: u32,
        size: u64,
        from: &mut dyn Read,
    ) -> Result<(), CpioError> {
        self.head(path, REGULAR | permissions, 1, size, (0, 0))?;
        let actual = copy(&mut from.take(size), &mut self.out, path)?;
        if actual != size {
            return Err(CpioError::Length { path: path.into(), expected: size, actual });
        }
        self.pad(size)
    }

    /// Adds a regular file as the last entry, but without its contents, which avoids copying a
    /// large file. The caller must place `size` bytes after the writer's output, padded to a
    /// multiple of four. Another archive with the trailer must follow.
    pub fn finish_before_contents(
        mut self,
        path: &str,
        permissions: u32,
        size: u64,
    ) -> Result<W, CpioError> {
        self.head(path, REGULAR | permissions, 1, size, (0, 0))?;
        self.out.flush().map_err(CpioError::Write)?;
        Ok(self.out)
    }

    /// Adds a symbolic link at `path` to `target`.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<(), CpioError> {
        self.entry(path, SYMLINK | 0o777, 1, target.as_bytes(), (0, 0))
    }

    /// Adds a character device node.
    pub fn character_device(
        &mut self,
        path: &str,
        permissions: u32,
        major: u32,
        minor: u32,
    ) -> Result<(), CpioError> {
        self.entry(path, CHARACTER_DEVICE | permissions, 1, &[], (major, minor))
    }

    /// Writes the trailer, flushes, and returns the writer.
    pub fn finish(mut self) -> Result<W, CpioError> {
        let end = Header { inode: 0, mode: 0, links: 1, size: 0, device: (0, 0) };
        self.write_head(TRAILER, &end)?;
        self.out.flush().map_err(CpioError::Write)?;
        Ok(self.out)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        links: u32,
        bytes: &[u8],
        device: (u32, u32),
    ) -> Result<(), CpioError> {
        let size = bytes.len() as u64;
        self.head(path, mode, links, size, device)?;
        self.out.write_all(bytes).map_err(CpioError::Write)?;
        self.pad(size)
    }

    fn head(
        &mut self,
        path: &str,
        mode: u32,
        links: u32,
        size: u64,
        device: (u32, u32),
    ) -> Result<(), CpioError> {
        if path.is_empty() || path.starts_with('/') || path.contains('\0') || path == TRAILER {
            return Err(CpioError::Name(path.into()));
        }
        let Ok(size) = u32::try_from(size) else {
            return Err(CpioError::TooBig { path: path.into(), size });
        };
        self.last_inode += 1;
        self.write_head(path, &Header { inode: self.last_inode, mode, links, size, device })
    }

    fn write_head(&mut self, path: &str, header: &Header) -> Result<(), CpioError> {
        let name_size = path.len() as u32 + 1;
        let fields = [
            header.inode,
            header.mode,
            0, // uid
            0, // gid
            header.links,
            0, // mtime
            header.size,
            0, // major number of the device that the file is on
            0, // its minor number
            header.device.0,
            header.device.1,
            name_size,
            0, // checksum: unused in `newc`
        ];
        let mut text = String::with_capacity(112 + path.len());
        text.push_str("070701");
        for field in fields {
            text.push_str(&format!("{field:08x}"));
        }
        text.push_str(path);
        text.push('\0');
        self.out.write_all(text.as_bytes()).map_err(CpioError::Write)?;
        self.pad(text.len() as u64)
    }

    /// Pads a header with its name, or contents, of `size` bytes to a multiple of four.
    fn pad(&mut self, size: u64) -> Result<(), CpioError> {
        let fill = (4 - size % 4) % 4;
        self.out.write_all(&[0; 3][..fill as usize]).map_err(CpioError::Write)
    }
}

/// Like [`io::copy`], but distinguishes a failed read from a failed write.
fn copy(from: &mut dyn Read, out: &mut dyn Write, path: &str) -> Result<u64, CpioError> {
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(CpioError::Read { path: path.into(), source }),
        };
        out.write_all(&buffer[..count]).map_err(CpioError::Write)?;
        total += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_fixtures::newc_names;
    use super::*;
    use std::process::{Command, Stdio};

    fn sample() -> Result<Vec<u8>, CpioError> {
        let mut archive = Archive::new(Vec::new());
        archive.directory("dev", 0o755)?;
        archive.character_device("dev/console", 0o600, 5, 1)?;
        archive.file("init", 0o755, b"12345")?;
        archive.file_from("copied", 0o644, 3, &mut &b"abcdef"[..])?;
        archive.symlink("link", "init")?;
        archive.finish()
    }

    #[test]
    fn every_part_is_aligned_and_the_trailer_is_last() {
        let bytes = sample().expect("archive");
        assert_eq!(newc_names(&bytes), ["dev", "dev/console", "init", "copied", "link"]);
        let trailer = bytes.windows(11).rposition(|part| part == b"TRAILER!!!\0").unwrap();
        assert_eq!(bytes.len(), (trailer + 11).next_multiple_of(4));
    }

    #[test]
    fn the_cpio_tool_reads_archives() {
        let Ok(mut tool) = Command::new("cpio")
            .args(["-itv", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            eprintln!("skipped: no cpio tool here");
            return;
        };
        let mut stdin = tool.stdin.take().expect("stdin");
        stdin.write_all(&sample().expect("archive")).expect("write");
        drop(stdin);
        let output = tool.wait_with_output().expect("cpio");
        let list = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{list}");
        let lines: Vec<&str> = list.lines().collect();
        assert!(lines[0].starts_with("drwxr-xr-x"), "{list}");
        assert!(lines[1].starts_with("crw-------") && lines[1].contains("5,   1"), "{list}");
        assert!(lines[3].starts_with("-rw-r--r--") && lines[3].contains(" 3 "), "{list}");
        assert!(lines[4].starts_with("lrwxrwxrwx") && lines[4].ends_with("link -> init"), "{list}");
    }

    #[test]
    fn bad_names_and_short_files_are_refused() {
        let mut archive = Archive::new(Vec::new());
        for name in ["", "/init", "a\0b", TRAILER] {
            assert!(matches!(archive.file(name, 0o644, b""), Err(CpioError::Name(_))), "{name:?}");
        }
        let short = archive.file_from("short", 0o644, 4, &mut &b"abc"[..]);
        assert!(matches!(short, Err(CpioError::Length { expected: 4, actual: 3, .. })));
        let big = archive.file_from("big", 0o644, 1 << 32, &mut io::empty());
        assert!(matches!(big, Err(CpioError::TooBig { .. })));
    }
}
