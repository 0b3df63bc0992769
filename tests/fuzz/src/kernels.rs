//! Kernels, RAM disks and command lines.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Cursor, Seek, SeekFrom, Write},
    path::Path,
};

use base::units::{VcpuCount, VcpuId};
use boot::{
    BootError, InitrdPart, LinuxEntry, Ring, layout, linux_registers, load_linux, load_payload,
    payload_registers, test_fixtures,
};
use kvm_bindings::kvm_sregs;
use linux_loader::bootparam::boot_params;
use vm_memory::{
    Bytes, GuestAddress, ReadVolatile, VolatileMemoryError, VolatileSlice, bitmap::BitmapSlice,
};

use crate::input::{Input, is_one_line};

/// Offset and value of the setup header's magic number (boot.rst).
const HEADER: (usize, &[u8]) = (0x202, b"HdrS");
const RAM: u32 = 1;

/// Values of the byte for the memory size: the file is loaded unchanged, or shortened while it is read.
const UNCHANGED: u8 = 255;
const SHORTENED: u8 = 254;

/// A file of `len` bytes that is shorter by the time it is read.
struct ShrinkingFile<'a> {
    len: u64,
    remaining: Cursor<&'a [u8]>,
}

impl<'a> ShrinkingFile<'a> {
    fn new(file: &'a [u8], remaining: usize) -> Self {
        Self { len: file.len() as u64, remaining: Cursor::new(&file[..remaining.min(file.len())]) }
    }
}

impl Seek for ShrinkingFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::End(0) => Ok(self.len),
            _ => self.remaining.seek(to),
        }
    }
}

impl ReadVolatile for ShrinkingFile<'_> {
    fn read_volatile<B: BitmapSlice>(
        &mut self,
        into: &mut VolatileSlice<'_, B>,
    ) -> Result<usize, VolatileMemoryError> {
        self.remaining.read_volatile(into)
    }
}

/// Loads a kernel into `mib` MiB; None if it is rejected. An accepted kernel must lie in memory, and the zero
/// page must describe the memory and the RAM disk.
fn load(
    kernel: &[u8],
    initrd: &mut [InitrdPart<'_>],
    cmdline: &str,
    mib: u64,
) -> Option<LinuxEntry> {
    let memory = test_fixtures::guest(mib);
    let loaded = load_linux(&memory, &mut Cursor::new(kernel), initrd, cmdline, VcpuCount::ONE);
    let entry = match loaded {
        Ok(entry) => entry,
        Err(error) => {
            is_one_line(&error.to_string());
            return None;
        }
    };
    let end = mib << 20;
    assert!(entry.entry >= layout::HIGH_RAM && entry.entry.0 < end);
    assert!(entry.kernel_end.0 <= end);
    assert_eq!(linux_registers(&mut kvm_sregs::default(), &entry).rip, entry.entry.0);
    let page: boot_params = memory.read_obj(GuestAddress(layout::BOOT_PARAMS.0)).unwrap();
    let table = page.e820_table;
    let ranges: Vec<(u64, u64, u32)> = table
        .iter()
        .take(page.e820_entries.into())
        .map(|range| (range.addr, range.size, range.r#type))
        .collect();
    let ends = |range: &(u64, u64, u32)| range.0.checked_add(range.1).unwrap();
    assert!(ranges.iter().all(|range| range.2 != RAM || range.1 <= end), "{ranges:x?}");
    assert!(ranges.windows(2).all(|two| ends(&two[0]) <= two[1].0), "{ranges:x?}");
    if let Some(at) = &entry.initrd {
        assert!(entry.kernel_end <= at.start && at.start < at.end && at.end.0 <= end);
        assert_eq!(u64::from(page.hdr.ramdisk_image), at.start.0);
        assert_eq!(u64::from(page.hdr.ramdisk_size), at.end.0 - at.start.0);
        let is_around = |range: &(u64, u64, u32)| {
            range.2 == RAM && range.0 <= at.start.0 && at.end.0 <= ends(range)
        };
        assert!(ranges.iter().any(is_around), "{at:x?} in {ranges:x?}");
    }
    Some(entry)
}

/// Returns the memory size in MiB that a byte of the input stands for.
fn mib(byte: u8) -> u64 {
    1 + u64::from(byte % 70)
}

/// An ELF kernel, and the same file as a payload.
pub fn elf(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let byte = input.byte();
    let kernel = [b"\x7fELF", input.remaining()].concat();
    if byte == SHORTENED {
        let left = usize::from(kernel.last().copied().unwrap_or_default()) * 2;
        let memory = test_fixtures::guest(mib(byte));
        let mut file = ShrinkingFile::new(&kernel, left);
        if let Err(error) = load_linux(&memory, &mut file, &mut [], "quiet", VcpuCount::ONE) {
            is_one_line(&error.to_string());
        }
        return;
    }
    load(&kernel, &mut [], "quiet", mib(byte));
    let memory = test_fixtures::guest(hypercalls::payload::MEMORY >> 20);
    match load_payload(&memory, &kernel, Ring::User) {
        Ok(entry) => {
            let registers =
                payload_registers(&mut kvm_sregs::default(), VcpuId(3), entry, Ring::User);
            assert_eq!(registers.rip, entry.0);
        }
        Err(error) => is_one_line(&error.to_string()),
    }
}

pub fn elf_seeds() -> Vec<Vec<u8>> {
    let kernels = [test_fixtures::vmlinux(), test_fixtures::elf(0x20_0000, 0x20_0000, 64)];
    let complete = kernels.iter().map(|kernel| [&[63], &kernel[4..]].concat());
    // Cut within the header, after the program headers, and within the code.
    let shortened =
        [2, 60, 61].map(|half| [&[SHORTENED], &test_fixtures::vmlinux()[4..], &[half]].concat());
    complete.chain(shortened).collect()
}

pub fn bzimage(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let byte = input.byte();
    let mut kernel = input.remaining().to_vec();
    if byte != UNCHANGED {
        let (at, magic) = HEADER;
        kernel.resize(kernel.len().max(at + magic.len()), 0);
        kernel[at..at + magic.len()].copy_from_slice(magic);
    }
    load(&kernel, &mut [InitrdPart::Bytes(b"070701")], "quiet", mib(byte));
}

pub fn bzimage_seeds() -> Vec<Vec<u8>> {
    let image = test_fixtures::bzimage();
    let mut any_initrd = image.clone();
    test_fixtures::put(&mut any_initrd, 0x22c, &[0; 4]);
    vec![
        [&[63], &image[..]].concat(),
        [&[63], &any_initrd[..]].concat(),
        [&[UNCHANGED], &test_fixtures::vmlinux()[..]].concat(),
        vec![UNCHANGED; 0x300],
        vec![UNCHANGED; 3],
    ]
}

/// Size of a sparse file.
const HUGE: u64 = 1 << 30;

thread_local! {
    /// Reused by all executions of [`initrd`]: creating a file takes longer than loading it.
    static FILE: RefCell<File> = RefCell::new(tempfile::tempfile().unwrap());
}

/// A RAM disk of up to three parts. A second part of [`HUGE`] fits into no memory.
pub fn initrd(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let cuts = [input.half(), input.half()].map(usize::from);
    let (first, second, third) = (input.bytes(cuts[0]), input.bytes(cuts[1]), input.remaining());
    FILE.with_borrow_mut(|file| {
        file.rewind().unwrap();
        file.write_all(second).unwrap();
        let len = if cuts[1] == usize::from(u16::MAX) { HUGE } else { second.len() as u64 };
        file.set_len(len).unwrap();
        let mut parts = [
            InitrdPart::Bytes(first),
            InitrdPart::File(file, Path::new("initrd")),
            InitrdPart::Bytes(third),
        ];
        load(&test_fixtures::vmlinux(), &mut parts, "quiet", 20);
    });
}

pub fn initrd_seeds() -> Vec<Vec<u8>> {
    let files = [
        test_fixtures::newc_file("init", b"#!/bin/sh\n"),
        test_fixtures::newc_file("etc/a", &[1; 301]),
    ];
    let archive = [&files.concat()[..], &test_fixtures::newc_file("TRAILER!!!", b"")].concat();
    let parts = |first: u16, second: u16, bytes: &[u8]| {
        [&first.to_le_bytes()[..], &second.to_le_bytes(), bytes].concat()
    };
    let len = archive.len() as u16;
    vec![
        parts(0, 0, &archive),
        parts(0, 2, b"\x1f\x8b"),
        parts(126, len - 126, &archive),
        parts(0, len, &archive),
        parts(0, 60, &archive),
        parts(0, u16::MAX, b""),
    ]
}

/// A command line, and a bzImage's limits for its length and for RAM disks.
pub fn cmdline(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (kind, mib) = (input.byte(), 20 + u64::from(input.half() % 4200));
    let (limit, initrd_max) = (input.word(), input.word());
    let cmdline = String::from_utf8_lossy(input.remaining());
    let mut kernel = test_fixtures::bzimage();
    test_fixtures::put(&mut kernel, 0x238, &limit.to_le_bytes());
    test_fixtures::put(&mut kernel, 0x22c, &initrd_max.to_le_bytes());
    let kernel = if kind % 2 == 0 { kernel } else { test_fixtures::vmlinux() };
    let mut parts = [InitrdPart::Bytes(b"\x1f\x8b")];
    if load(&kernel, &mut parts, &cmdline, mib).is_none() {
        return;
    }
    // The command line was accepted, so it is no longer than the default or the header allows.
    let memory = test_fixtures::guest(mib);
    let again = load_linux(&memory, &mut Cursor::new(&kernel), &mut [], &cmdline, VcpuCount::ONE);
    assert!(!matches!(again, Err(BootError::CmdlineTooLong { .. })));
    let mut stored = vec![0; cmdline.len() + 1];
    memory.read_slice(&mut stored, GuestAddress(layout::CMDLINE.0)).unwrap();
    assert_eq!(stored.strip_suffix(b"\0"), Some(cmdline.as_bytes()));
}

pub fn cmdline_seeds() -> Vec<Vec<u8>> {
    let head = |kind: u8, mib: u16, limit: u32| {
        [&[kind], &mib.to_le_bytes()[..], &limit.to_le_bytes(), &[0xff, 0xff, 0xff, 0x7f]].concat()
    };
    let text = &b"console=ttyS0 quiet panic=-1"[..];
    vec![
        [&head(0, 44, 2047)[..], text].concat(),
        [&head(1, 4100, 0)[..], text].concat(),
        [&head(0, 44, 40)[..], &[b'a'; 41]].concat(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without such a seed, mutations hardly ever reach the check for an archive's end.
    #[test]
    fn a_seed_has_a_complete_archive_in_a_file() {
        let is_complete = |seed: &Vec<u8>| {
            let mut input = Input::new(seed);
            let cuts = [input.half(), input.half()].map(usize::from);
            let (_, file) = (input.bytes(cuts[0]), input.bytes(cuts[1]));
            let end = &test_fixtures::newc_file("TRAILER!!!", b"")[..];
            file.starts_with(b"070701") && file.windows(end.len()).any(|bytes| bytes == end)
        };
        assert!(initrd_seeds().iter().any(is_complete));
    }
}
