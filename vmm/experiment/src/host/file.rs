//! Identifies a program or kernel file by its hash.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use memchr::memmem;
use sha2::{Digest, Sha256};
use study::host_facts::FileFacts;

/// Number of bytes kept of a hash: enough to distinguish files, short enough to read.
const HASH_BYTES: usize = 8;

/// Bytes of a file read at a time.
const CHUNK: usize = 1 << 20;

/// Start of the banner of an uncompressed Linux kernel, before its release.
const BANNER: &[u8] = b"Linux version ";

/// Maximum length of a banner, with the names of compilers.
const LINE: usize = 512;

/// Returns the facts of this program's file.
pub fn binary_facts() -> Option<FileFacts> {
    let path = std::env::current_exe().ok()?;
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    Some(FileFacts { version, ..kernel_facts(&path)? })
}

/// Returns the facts of a kernel, ELF or bzImage; None unless it is a readable regular file.
pub fn kernel_facts(path: &Path) -> Option<FileFacts> {
    let mut file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let (sha256, banner) = read(&mut file).ok()?;
    let (version, preemption) = banner.map(|it| (it.release, it.preemption)).unzip();
    let (name, path) = (String::new(), path.display().to_string());
    Some(FileFacts { name, path, sha256, version, preemption })
}

/// Returns the hash of the input, and the banner of the kernel in it.
fn read(from: &mut impl Read) -> io::Result<(String, Option<Banner>)> {
    let mut hash = Sha256::new();
    let mut banner = None;
    let mut bytes = Vec::new();
    let mut is_start = true;
    loop {
        // Kept to find a banner across two chunks.
        let overlap = bytes.len().min(BANNER.len() + LINE);
        bytes.drain(..bytes.len() - overlap);
        if from.by_ref().take(CHUNK as u64).read_to_end(&mut bytes)? == 0 {
            break;
        }
        hash.update(&bytes[overlap..]);
        if is_start {
            banner = bzimage_banner(&bytes);
        }
        is_start = false;
        banner = banner.or_else(|| elf_banner(&bytes));
    }
    let digest = hash.finalize();
    Ok((digest.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect(), banner))
}

/// Returns the banner in the string that the setup header points to
/// (Documentation/arch/x86/boot.rst, `kernel_version`).
fn bzimage_banner(start: &[u8]) -> Option<Banner> {
    if start.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let pointer = u16::from_le_bytes([*start.get(0x20e)?, *start.get(0x20f)?]);
    Banner::parse(start.get(0x200 + usize::from(pointer)..)?)
}

/// Returns the banner of an uncompressed kernel. A format string of a banner does not count.
fn elf_banner(bytes: &[u8]) -> Option<Banner> {
    memmem::find_iter(bytes, BANNER).find_map(|at| Banner::parse(&bytes[at + BANNER.len()..]))
}

/// The parts of a kernel's banner: `RELEASE (USER@HOST) ... #1 SMP PREEMPT_DYNAMIC DATE`.
#[derive(Debug, PartialEq, Eq)]
struct Banner {
    release: String,
    preemption: String,
}

impl Banner {
    /// Parses a complete line that begins with a digit.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let line = bytes.split(|byte| matches!(byte, 0 | b'\n')).next()?;
        let is_complete = line.len() < bytes.len() && line.len() <= LINE;
        if !is_complete || !line.first()?.is_ascii_digit() {
            return None;
        }
        let line = String::from_utf8_lossy(line);
        let release = line.split_whitespace().next()?.to_owned();
        // init/Makefile of Linux: of the models, only these have no word.
        let word = line.split_whitespace().find(|word| word.starts_with("PREEMPT"));
        let preemption = word.unwrap_or("PREEMPT_NONE or PREEMPT_VOLUNTARY").to_owned();
        Some(Self { release, preemption })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_published_ones() {
        // The hashes of "abc", from FIPS 180-2, and of the empty input.
        assert_eq!(read(&mut &b"abc"[..]).unwrap(), ("ba7816bf8f01cfea".into(), None));
        assert_eq!(read(&mut &b""[..]).unwrap(), ("e3b0c44298fc1c14".into(), None));
        // A million times "a", from the same source, fills most of a chunk.
        let many = vec![b'a'; 1_000_000];
        let (hash, _) = read(&mut many.as_slice()).unwrap();
        assert_eq!(hash, "cdc76e5c9914fb92");
    }

    #[test]
    fn releases_are_found_wherever_chunks_end() {
        let mut image = vec![0; CHUNK + 200];
        image[100..100 + 16].copy_from_slice(b"Linux version %s");
        let banner = b"Linux version 6.1.99-pvticket (me@here) #1 SMP PREEMPT_RT now\n";
        for at in [300, CHUNK - 60, CHUNK - 20, CHUNK - 3, CHUNK, CHUNK + 20] {
            let mut image = image.clone();
            image[at..at + banner.len()].copy_from_slice(banner);
            let banner = read(&mut image.as_slice()).unwrap().1.unwrap();
            let facts = [banner.release, banner.preemption];
            assert_eq!(facts, ["6.1.99-pvticket", "PREEMPT_RT"], "at {at}");
        }
        assert_eq!(read(&mut image.as_slice()).unwrap().1, None);
    }

    #[test]
    fn bzimage_banner_is_read_from_the_header() {
        let mut image = vec![0; 0x1000];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x600u16.to_le_bytes());
        image[0x800..0x810].copy_from_slice(b"6.1.0-9 (a@b) #1");
        let banner = bzimage_banner(&image).unwrap();
        assert_eq!(banner.release, "6.1.0-9");
        assert_eq!(banner.preemption, "PREEMPT_NONE or PREEMPT_VOLUNTARY");
        image[0x20e..0x210].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(bzimage_banner(&image), None);
        assert_eq!(bzimage_banner(&image[..0x203]), None);
    }

    #[test]
    fn unreadable_files_have_no_facts() {
        assert_eq!(kernel_facts(Path::new("/nowhere/vmlinux")), None);
        assert_eq!(kernel_facts(Path::new("/dev/zero")), None);
    }
}
