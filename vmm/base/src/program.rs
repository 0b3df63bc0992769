//! The interpreter of an executable file, read from its first page.

use std::{
    ffi::OsStr,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::files;

/// Bytes to read. They usually include the ELF header and the program headers that follow it.
const HEAD: u64 = 4096;

const PT_INTERP: u64 = 3;

/// Whether `file` is an ELF file for x86-64 without a dynamic loader.
pub fn is_static(file: &Path) -> bool {
    head(file).is_some_and(|head| has_no_interpreter(&head))
}

/// Returns the program that the kernel starts to run this file: a dynamic loader, or the interpreter of a
/// script. None if the file needs no such program or cannot be parsed.
pub fn interpreter(file: &Path) -> Option<PathBuf> {
    interpreter_in(&head(file)?)
}

fn head(file: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    // Rejects FIFOs: opening them would block.
    files::open_regular(file).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    Some(head)
}

fn interpreter_in(head: &[u8]) -> Option<PathBuf> {
    let path = |bytes: &[u8]| {
        let is_some = !bytes.is_empty();
        is_some.then(|| PathBuf::from(OsStr::from_bytes(bytes)))
    };
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
        return path(line.split(u8::is_ascii_whitespace).next()?);
    }
    let header =
        program_headers(head)?.into_iter().find(|at| field(head, *at, 4) == Some(PT_INTERP))?;
    // p_offset and p_filesz (elf(5)).
    let offset = usize::try_from(field(head, header.checked_add(8)?, 8)?).ok()?;
    let size = usize::try_from(field(head, header.checked_add(32)?, 8)?).ok()?;
    let name = head.get(offset..offset.checked_add(size)?)?;
    path(name.split(|byte| *byte == 0).next()?)
}

/// Whether the program headers are valid and none is PT_INTERP.
fn has_no_interpreter(head: &[u8]) -> bool {
    let kinds = || {
        let headers = program_headers(head)?;
        headers.into_iter().map(|at| field(head, at, 4)).collect::<Option<Vec<_>>>()
    };
    kinds().is_some_and(|kinds| !kinds.contains(&PT_INTERP))
}

/// Returns the program headers' offsets in an x86-64 ELF file; None for other or truncated files.
fn program_headers(head: &[u8]) -> Option<Vec<usize>> {
    const ELF64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
    const MACHINE_X86_64: u64 = 62;
    if !head.starts_with(ELF64_LITTLE_ENDIAN) || field(head, 18, 2) != Some(MACHINE_X86_64) {
        return None;
    }
    let (start, size, count) = (field(head, 32, 8)?, field(head, 54, 2)?, field(head, 56, 2)?);
    let at = |index: u64| usize::try_from(start.checked_add(index.checked_mul(size)?)?).ok();
    (0..count).map(at).collect()
}

/// Reads a little-endian number of `size` bytes; None beyond the end.
fn field(head: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = head.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::env;

    use proptest::prelude::*;

    use super::*;

    /// Builds an ELF file with program headers of these kinds; each refers to the bytes after all headers.
    fn elf(kinds: &[u32]) -> Vec<u8> {
        const NAME: &[u8] = b"/lib64/loader\0";
        let end = 64 + 56 * kinds.len();
        let mut head = vec![0; end];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[18] = 62;
        head[32] = 64;
        head[54] = 56;
        head[56] = kinds.len() as u8;
        for (index, kind) in kinds.iter().enumerate() {
            let header = &mut head[64 + index * 56..];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&(end as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(NAME.len() as u64).to_le_bytes());
        }
        head.extend(NAME);
        head
    }

    #[test]
    fn static_means_no_interpreter() {
        assert!(has_no_interpreter(&elf(&[1, 1, 2])));
        assert!(!has_no_interpreter(&elf(&[6, 3, 1])));
        assert!(!has_no_interpreter(&elf(&[1])[..66]), "cut short");
        assert!(!has_no_interpreter(b"#!/bin/sh\n"));
    }

    #[test]
    fn finds_the_interpreter_of_a_program() {
        let parse = |head: &[u8]| interpreter_in(head).map(|path| path.display().to_string());
        assert_eq!(parse(&elf(&[6, 3, 1])).as_deref(), Some("/lib64/loader"));
        assert_eq!(parse(&elf(&[1, 2])), None);
        assert_eq!(parse(b"#! /usr/bin/env python3\nprint()").as_deref(), Some("/usr/bin/env"));
        for text in [&b""[..], b"#!", b"#!\n/bin/sh", b"text"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn invalid_elf_headers_do_not_panic(
            changes in prop::collection::vec((0..120_usize, any::<u8>()), 0..9),
            start in prop::sample::select(vec![0, 64, u64::MAX - 64, u64::MAX]),
            cut in 0..200_usize,
        ) {
            let mut head = elf(&[1, 3]);
            head[32..40].copy_from_slice(&start.to_le_bytes());
            for (at, byte) in changes {
                head[at] = byte;
            }
            head.truncate(cut);
            has_no_interpreter(&head);
            interpreter_in(&head);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let head = [b"\x7fELF\x02\x01", &bytes[..]].concat();
            has_no_interpreter(&head);
            interpreter_in(&head);
        }
    }

    #[test]
    fn detects_the_linkage_of_this_test() {
        let test = env::current_exe().expect("own path");
        assert_eq!(is_static(&test), cfg!(target_feature = "crt-static"));
        assert_eq!(interpreter(&test).is_none(), cfg!(target_feature = "crt-static"));
    }
}
