//! Random kernels, RAM disks, command lines and memory sizes: no loader panics, and what it accepts
//! lies in memory.

use std::io::Cursor;

use linux_loader::bootparam::boot_params;
use proptest::{prelude::*, sample::Index};
use vm_memory::{Bytes, GuestAddress};

use super::{
    InitrdPart, LinuxEntry, error::BootError, layout, linux::load_linux, newc, test_fixtures,
};
use base::units::VcpuCount;

/// Numbers at which address arithmetic may go wrong, and arbitrary ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        prop::sample::select(vec![
            0,
            1,
            63,
            64,
            0xfff,
            0x1000,
            0xf_ffff,
            0x10_0000,
            0x3ff_ffff,
            0x400_0000,
            0x7fff_ffff,
            0xffff_ffff,
            1 << 32,
            1 << 63,
            u64::MAX - 0xfff,
            u64::MAX - 1,
            u64::MAX,
        ]),
    ]
}

/// Numbers of 1 to 8 bytes to overwrite parts of a header with: the place, the width and the number.
fn changes() -> impl Strategy<Value = Vec<(Index, usize, u64)>> {
    prop::collection::vec((any::<Index>(), 1..=8_usize, number()), 0..6)
}

fn change(mut image: Vec<u8>, changes: &[(Index, usize, u64)], cut: usize) -> Vec<u8> {
    for (place, width, number) in changes {
        let at = place.index(image.len());
        let width = (*width).min(image.len() - at);
        image[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
    }
    image.truncate(image.len().saturating_sub(cut));
    image
}

/// Loads a kernel and its initrd into a machine with `mib` MiB. What is accepted lies in its memory;
/// the message of a rejection is one line.
fn load(
    kernel: &[u8],
    initrd: &[u8],
    cmdline: &str,
    mib: u64,
) -> Result<(LinuxEntry, boot_params), TestCaseError> {
    let memory = test_fixtures::guest(mib);
    let mut parts = [InitrdPart::Bytes(initrd)];
    let loaded = load_linux(&memory, &mut Cursor::new(kernel), &mut parts, cmdline, VcpuCount::ONE);
    let entry = match loaded {
        Ok(entry) => entry,
        Err(error) => {
            let message = error.to_string();
            prop_assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
            return Err(TestCaseError::Reject("refused".into()));
        }
    };
    let end = mib << 20;
    prop_assert!(entry.entry >= layout::HIGH_RAM && entry.entry.0 < end);
    prop_assert!(entry.kernel_end.0 <= end);
    if let Some(at) = &entry.initrd {
        prop_assert!(entry.kernel_end <= at.start && at.start < at.end && at.end.0 <= end);
    }
    let page = memory.read_obj(GuestAddress(layout::BOOT_PARAMS.0)).unwrap();
    Ok((entry, page))
}

/// A load that may be rejected.
fn try_load(kernel: &[u8], initrd: &[u8], cmdline: &str, mib: u64) -> Result<(), TestCaseError> {
    match load(kernel, initrd, cmdline, mib) {
        Err(TestCaseError::Reject(_)) => Ok(()),
        other => other.map(drop),
    }
}

fn is_whole(bytes: &[u8], mib: u64) -> bool {
    let memory = test_fixtures::guest(mib);
    memory.write_slice(bytes, GuestAddress(0x1000)).unwrap();
    newc::is_whole(&memory, 0x1000..0x1000 + bytes.len() as u64)
}

proptest! {
    #[test]
    fn no_vmlinux_makes_the_loader_panic(changes in changes(), cut in 0..70_usize, mib in 1..70_u64) {
        // Changes only the headers, which have 120 bytes; the cut may reach the code, too.
        let mut image = test_fixtures::vmlinux();
        let code = image.split_off(120);
        let image = [change(image, &changes, 0), code].concat();
        let cut = image.len() - cut.min(image.len());
        try_load(&image[..cut], b"", "quiet", mib)?;
    }

    #[test]
    fn no_bzimage_makes_the_loader_panic(changes in changes(), cut in 0..70_usize, mib in 1..70_u64) {
        // The setup header extends from 0x1f1 to 0x26c.
        let image = test_fixtures::bzimage();
        let header = change(image[0x1f1..0x26c].to_vec(), &changes, 0);
        let image = [&image[..0x1f1], &header, &image[0x26c..]].concat();
        let cut = image.len() - cut.min(image.len());
        try_load(&image[..cut], b"070701", "quiet", mib)?;
    }

    #[test]
    fn no_bytes_make_the_loader_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), kind in 0..3) {
        let mut bytes = bytes;
        match kind {
            0 if bytes.len() > 20 => bytes[..20].copy_from_slice(&test_fixtures::vmlinux()[..20]),
            1 if bytes.len() > 0x206 => bytes[0x202..0x206].copy_from_slice(b"HdrS"),
            _ => {}
        }
        try_load(&bytes, b"", "", 8)?;
    }

    /// The entries of the memory map are in order and do not overlap, none of RAM is larger than the memory, and one
    /// of RAM contains the initrd. A command line of more than 2047 bytes is refused.
    #[test]
    fn the_zero_page_is_correct_at_any_memory_size(
        mib in 20..9000_u64,
        initrd in prop::collection::vec(any::<u8>(), 1..5000),
        cmdline in "[ -~]{0,2100}",
        vmlinux: bool,
    ) {
        let kernel = if vmlinux { test_fixtures::vmlinux() } else { test_fixtures::bzimage() };
        let initrd = [b"\x1f\x8b", &initrd[..]].concat();
        if cmdline.len() > 2047 {
            let memory = test_fixtures::guest(mib);
            let loaded = load_linux(&memory, &mut Cursor::new(kernel), &mut [], &cmdline, VcpuCount::ONE);
            let is_too_long = matches!(loaded, Err(BootError::CmdlineTooLong { .. }));
            prop_assert!(is_too_long);
            return Ok(());
        }
        let (entry, page) = load(&kernel, &initrd, &cmdline, mib)?;
        let table = page.e820_table;
        let entries = table.iter().take(page.e820_entries.into());
        let ranges: Vec<(u64, u64, u32)> = entries.map(|range| (range.addr, range.size, range.r#type)).collect();
        let is_at_most_memory = |range: &(u64, u64, u32)| range.2 != 1 || range.1 <= mib << 20;
        prop_assert!(ranges.iter().all(is_at_most_memory), "{ranges:x?}");
        let sorted = ranges.windows(2).all(|two| two[0].0.checked_add(two[0].1).is_some_and(|end| end <= two[1].0));
        prop_assert!(sorted, "{ranges:x?}");
        let at = entry.initrd.unwrap();
        prop_assert_eq!(u64::from(page.hdr.ramdisk_image), at.start.0);
        prop_assert_eq!(u64::from(page.hdr.ramdisk_size), at.end.0 - at.start.0);
        let is_inside = |range: &(u64, u64, u32)| range.2 == 1 && range.0 <= at.start.0 && at.end.0 <= range.0 + range.1;
        prop_assert!(ranges.iter().any(is_inside), "{at:x?} in {ranges:x?}");
    }

    #[test]
    fn no_change_of_an_archive_makes_its_check_panic(
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..8),
        digits in "[0-9a-fA-F+ xz-]{8}",
        field in 0..13_usize,
        cut in 0..500_usize,
    ) {
        let whole = [test_fixtures::newc_file("init", b"#!/bin/sh\n"), test_fixtures::newc_file("etc/a", &[1; 301]), test_fixtures::newc_file("TRAILER!!!", b"")].concat();
        prop_assert!(is_whole(&whole, 1));
        let mut bytes = whole.clone();
        bytes[6 + 8 * field..][..8].copy_from_slice(digits.as_bytes());
        is_whole(&bytes, 1);
        for (place, byte) in changes {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        is_whole(&bytes, 1);
    }

    #[test]
    fn no_bytes_make_the_check_of_an_archive_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), magic: bool) {
        let bytes = if magic { [b"070701", &bytes[..]].concat() } else { bytes };
        is_whole(&bytes, 1);
    }
}
