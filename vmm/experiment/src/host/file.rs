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

/// Maximum length of a Linux kernel's release, by the limit of `uname`.
const RELEASE: usize = 64;

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
    let (sha256, version) = read(&mut file).ok()?;
    Some(FileFacts { path: path.display().to_string(), sha256, version })
}

/// Returns the hash of the input, and the release of the kernel in it.
fn read(from: &mut impl Read) -> io::Result<(String, Option<String>)> {
    let mut hash = Sha256::new();
    let mut version = None;
    let mut bytes = Vec::new();
    let mut is_start = true;
    loop {
        // Kept to find a banner across two chunks.
        let overlap = bytes.len().min(BANNER.len() + RELEASE);
        bytes.drain(..bytes.len() - overlap);
        if from.by_ref().take(CHUNK as u64).read_to_end(&mut bytes)? == 0 {
            break;
        }
        hash.update(&bytes[overlap..]);
        if is_start {
            version = bzimage_release(&bytes);
        }
        is_start = false;
        version = version.or_else(|| banner_release(&bytes));
    }
    let digest = hash.finalize();
    Ok((digest.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect(), version))
}

/// Returns the release in the string that the setup header points to
/// (Documentation/arch/x86/boot.rst, `kernel_version`).
fn bzimage_release(start: &[u8]) -> Option<String> {
    if start.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let pointer = u16::from_le_bytes([*start.get(0x20e)?, *start.get(0x20f)?]);
    release(start.get(0x200 + usize::from(pointer)..)?)
}

/// Returns the release in the kernel's banner. A format string of a banner does not count.
fn banner_release(bytes: &[u8]) -> Option<String> {
    memmem::find_iter(bytes, BANNER).find_map(|at| release(&bytes[at + BANNER.len()..]))
}

/// Returns a release: a word that begins with a digit and is not too long.
fn release(bytes: &[u8]) -> Option<String> {
    let word = bytes.split(|byte| !byte.is_ascii_graphic()).next()?;
    let is_complete = word.len() < bytes.len() && word.len() <= RELEASE;
    let is_release = is_complete && word.first()?.is_ascii_digit();
    is_release.then(|| String::from_utf8_lossy(word).into_owned())
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
        let banner = b"Linux version 6.1.99-pvticket (me@here) #1 SMP";
        for at in [300, CHUNK - 60, CHUNK - 20, CHUNK - 3, CHUNK, CHUNK + 20] {
            let mut image = image.clone();
            image[at..at + banner.len()].copy_from_slice(banner);
            let (_, version) = read(&mut image.as_slice()).unwrap();
            assert_eq!(version.as_deref(), Some("6.1.99-pvticket"), "at {at}");
        }
        assert_eq!(read(&mut image.as_slice()).unwrap().1, None);
    }

    #[test]
    fn bzimage_release_is_read_from_the_header() {
        let mut image = vec![0; 0x1000];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x600u16.to_le_bytes());
        image[0x800..0x810].copy_from_slice(b"6.1.0-9 (a@b) #1");
        assert_eq!(bzimage_release(&image).as_deref(), Some("6.1.0-9"));
        image[0x20e..0x210].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(bzimage_release(&image), None);
        assert_eq!(bzimage_release(&image[..0x203]), None);
    }

    #[test]
    fn unreadable_files_have_no_facts() {
        assert_eq!(kernel_facts(Path::new("/nowhere/vmlinux")), None);
        assert_eq!(kernel_facts(Path::new("/dev/zero")), None);
    }
}
