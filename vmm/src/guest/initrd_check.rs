//! Is this file an initrd? Asked before a guest is booted with it, whose own complaint would come
//! late and be long.

use std::{
    fs::File,
    io::{BufReader, ErrorKind, Read, Seek, SeekFrom},
    path::Path,
};

use super::initrd::InitrdError;

/// Beginnings of the compressed formats that Linux unpacks (lib/decompress.c of the kernel).
const COMPRESSED: &[&[u8]] = &[
    b"\x1f\x8b",
    b"\x1f\x9e",
    b"BZh",
    b"\x5d\x00",
    b"\xfd7zXZ\x00",
    b"\x89LZO",
    b"\x02\x21\x4c\x18",
    b"\x28\xb5\x2f\xfd",
];

/// Header of a `newc` entry: magic and thirteen fields of eight hexadecimal digits.
const HEADER: usize = 6 + 13 * 8;
const TRAILER: &str = "TRAILER!!!";

/// Refuses what the kernel would refuse for certain. Compressed archives are believed: only
/// unpacking tells more.
pub(super) fn check(path: &Path) -> Result<(), InitrdError> {
    let unreadable = |error| InitrdError::Unreadable { path: path.into(), error };
    let mut head = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(6).read_to_end(&mut head).map_err(unreadable)?;
    if COMPRESSED.iter().any(|magic| head.starts_with(magic)) {
        return Ok(());
    }
    names(path).map(drop)
}

/// The names in the first archive of the file, which must be a whole one.
pub(super) fn names(path: &Path) -> Result<Vec<String>, InitrdError> {
    let unreadable = |error| InitrdError::Unreadable { path: path.into(), error };
    let file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut reader = BufReader::new(file);
    let mut names = Vec::new();
    let mut at = 0;
    loop {
        let entry = entry(&mut reader).map_err(|error| match error.kind() {
            // A file shorter than a header is cut short too, if it began as one.
            ErrorKind::UnexpectedEof => InitrdError::Truncated(path.into()),
            ErrorKind::InvalidData => InitrdError::NotAnInitrd(path.into()),
            _ => unreadable(error),
        })?;
        if entry.name == TRAILER {
            return Ok(names);
        }
        names.push(entry.name);
        at = (at + HEADER as u64 + entry.name_size).next_multiple_of(4);
        at = (at + entry.size).next_multiple_of(4);
        if at >= length {
            return Err(InitrdError::Truncated(path.into()));
        }
        reader.seek(SeekFrom::Start(at)).map_err(unreadable)?;
    }
}

struct Entry {
    name: String,
    name_size: u64,
    size: u64,
}

/// Reads one header and its name. `InvalidData` when it is none.
fn entry(mut reader: impl Read) -> std::io::Result<Entry> {
    let invalid = || std::io::Error::from(ErrorKind::InvalidData);
    let mut header = Vec::with_capacity(HEADER);
    reader.by_ref().take(HEADER as u64).read_to_end(&mut header)?;
    if !header.starts_with(b"070701") && !header.starts_with(b"070702") {
        return Err(invalid());
    }
    if header.len() < HEADER {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let field = |index: usize| {
        let digits = header.get(6 + index * 8..14 + index * 8)?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (size, name_size) = (field(6).ok_or_else(invalid)?, field(11).ok_or_else(invalid)?);
    // PATH_MAX of Linux, with the NUL.
    if name_size == 0 || name_size > 4096 {
        return Err(invalid());
    }
    let mut name = vec![0; name_size as usize];
    reader.read_exact(&mut name)?;
    name.pop();
    Ok(Entry { name: String::from_utf8_lossy(&name).into_owned(), name_size, size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio::Archive;

    fn checked(name: &str, bytes: &[u8]) -> Result<(), InitrdError> {
        let file =
            std::env::temp_dir().join(format!("pvticket-check-{}-{name}", std::process::id()));
        std::fs::write(&file, bytes).expect("write");
        let result = check(&file);
        std::fs::remove_file(&file).expect("remove");
        result
    }

    fn archive() -> Vec<u8> {
        let mut archive = Archive::new(Vec::new());
        archive.directory("bin", 0o755).expect("directory");
        archive.file("bin/x", 0o755, &[1; 5000]).expect("file");
        archive.finish().expect("archive")
    }

    #[test]
    fn archives_and_compressed_files_pass() {
        assert!(checked("whole", &archive()).is_ok());
        assert!(checked("gzip", b"\x1f\x8b\x08rest").is_ok());
    }

    #[test]
    fn archives_cut_anywhere_do_not() {
        let whole = archive();
        let trailer = whole.len() - 124;
        for cut in [20, 113, 300, 4000, trailer, trailer + 50] {
            let result = checked("cut", &whole[..cut]);
            assert!(matches!(result, Err(InitrdError::Truncated(_))), "{cut}: {result:?}");
        }
    }

    #[test]
    fn other_files_do_not() {
        for bytes in [&b""[..], b"short", &[0; 4096], b"\x7fELF\x02\x01"] {
            assert!(matches!(checked("other", bytes), Err(InitrdError::NotAnInitrd(_))));
        }
    }
}
