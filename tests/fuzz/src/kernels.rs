//! Kernels, RAM disks and command lines.

use std::{
    cell::RefCell,
    fs::File,
    io::{Cursor, Seek, Write},
};

use base::units::VcpuCount;
use boot::{BootError, InitrdPart, LinuxEntry, Ring, fixtures, layout, load_linux, load_payload};
use linux_loader::bootparam::boot_params;
use vm_memory::{Bytes, GuestAddress};

use crate::input::{Input, is_one_line};

/// The setup header's magic number and its place (boot.rst).
const HEADER: (usize, &[u8]) = (0x202, b"HdrS");
const RAM: u32 = 1;

/// Loads a kernel into `mib` MiB. What a loader accepts has to lie in memory, and the zero page has to
/// say where it is.
fn load(
    kernel: &[u8],
    initrd: &mut [InitrdPart<'_>],
    cmdline: &str,
    mib: u64,
) -> Option<LinuxEntry> {
    let memory = fixtures::guest(mib);
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
    let page: boot_params = memory.read_obj(GuestAddress(layout::BOOT_PARAMS.0)).unwrap();
    let table = page.e820_table;
    let ranges: Vec<(u64, u64, u32)> = table
        .iter()
        .take(page.e820_entries.into())
        .map(|range| (range.addr, range.size, range.r#type))
        .collect();
    let ends = |range: &(u64, u64, u32)| range.0.checked_add(range.1).unwrap();
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

fn mib(input: &mut Input<'_>) -> u64 {
    1 + input.below(70) as u64
}

/// An ELF kernel, and the same file as a payload.
pub fn elf(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mib = mib(&mut input);
    let kernel = [b"\x7fELF", input.rest()].concat();
    load(&kernel, &mut [], "quiet", mib);
    let memory = fixtures::guest(hypercalls::payload::MEMORY >> 20);
    if let Err(error) = load_payload(&memory, &kernel, Ring::User) {
        is_one_line(&error.to_string());
    }
}

pub fn elf_seeds() -> Vec<Vec<u8>> {
    let kernels = [fixtures::vmlinux(), fixtures::elf(0x20_0000, 0x20_0000, 64)];
    kernels.iter().map(|kernel| [&[63], &kernel[4..]].concat()).collect()
}

/// A bzImage.
pub fn bzimage(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mib = mib(&mut input);
    let mut kernel = input.rest().to_vec();
    let (at, magic) = HEADER;
    kernel.resize(kernel.len().max(at + magic.len()), 0);
    kernel[at..at + magic.len()].copy_from_slice(magic);
    load(&kernel, &mut [InitrdPart::Bytes(b"070701")], "quiet", mib);
}

pub fn bzimage_seeds() -> Vec<Vec<u8>> {
    vec![[&[63], &fixtures::bzimage()[..]].concat()]
}

thread_local! {
    /// The file of each execution of [`initrd`]: making one takes longer than loading it.
    static FILE: RefCell<File> = RefCell::new(tempfile::tempfile().unwrap());
}

/// A RAM disk of up to three parts, and what Linux finds of it.
pub fn initrd(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let cuts = [input.half(), input.half()].map(usize::from);
    let (first, second, third) = (input.bytes(cuts[0]), input.bytes(cuts[1]), input.rest());
    FILE.with_borrow_mut(|file| {
        file.rewind().unwrap();
        file.write_all(second).unwrap();
        file.set_len(second.len() as u64).unwrap();
        let mut parts =
            [InitrdPart::Bytes(first), InitrdPart::File(file), InitrdPart::Bytes(third)];
        load(&fixtures::vmlinux(), &mut parts, "quiet", 20);
    });
}

pub fn initrd_seeds() -> Vec<Vec<u8>> {
    let files =
        [fixtures::newc_file("init", b"#!/bin/sh\n"), fixtures::newc_file("etc/a", &[1; 301])];
    let whole = [&files.concat()[..], &fixtures::newc_file("TRAILER!!!", b"")].concat();
    let cut = |bytes: &[u8]| [&[0; 4], bytes].concat();
    vec![cut(&whole), cut(b"\x1f\x8b"), [&[126, 0, 0, 0], &whole[..]].concat()]
}

/// A command line, and what a bzImage says about its length and about RAM disks.
pub fn cmdline(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (kind, mib) = (input.byte(), 20 + u64::from(input.half() % 4200));
    let (limit, initrd_max) = (input.word(), input.word());
    let cmdline = String::from_utf8_lossy(input.rest());
    let mut kernel = fixtures::bzimage();
    fixtures::put(&mut kernel, 0x238, &limit.to_le_bytes());
    fixtures::put(&mut kernel, 0x22c, &initrd_max.to_le_bytes());
    let kernel = if kind % 2 == 0 { kernel } else { fixtures::vmlinux() };
    let mut parts = [InitrdPart::Bytes(b"\x1f\x8b")];
    if load(&kernel, &mut parts, &cmdline, mib).is_none() {
        return;
    }
    // It was accepted, so it is no longer than the default or the header allows.
    let memory = fixtures::guest(mib);
    let again = load_linux(&memory, &mut Cursor::new(&kernel), &mut [], &cmdline, VcpuCount::ONE);
    assert!(!matches!(again, Err(BootError::CmdlineTooLong { .. })));
    let mut there = vec![0; cmdline.len() + 1];
    memory.read_slice(&mut there, GuestAddress(layout::CMDLINE.0)).unwrap();
    assert_eq!(there.strip_suffix(b"\0"), Some(cmdline.as_bytes()));
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
