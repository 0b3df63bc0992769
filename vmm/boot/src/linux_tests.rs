use std::io::Cursor;
use std::path::Path;

use linux_loader::bootparam::boot_params;
use vm_memory::{Bytes, GuestAddress, bitmap::Bitmap};

use super::super::test_fixtures::{CODE, INIT_SIZE, KERNEL_AT, bzimage, elf, guest, put, vmlinux};
use super::*;
use base::units::ByteSize;

fn boot(memory: &GuestMemoryMmap<impl Bitmap>, kernel: &[u8]) -> Result<LinuxEntry, BootError> {
    load_linux(memory, &mut Cursor::new(kernel), &mut [], "quiet", VcpuCount::ONE)
}

fn boot_with(
    memory: &GuestMemoryMmap<impl Bitmap>,
    initrd: &[&[u8]],
) -> Result<LinuxEntry, BootError> {
    let mut parts: Vec<_> = initrd.iter().map(|bytes| InitrdPart::Bytes(bytes)).collect();
    load_linux(memory, &mut Cursor::new(bzimage()), &mut parts, "", VcpuCount::ONE)
}

fn refusal(kernel: &[u8]) -> ImageError {
    match boot(&guest(64), kernel) {
        Err(BootError::Kernel(error)) => error,
        result => panic!("{result:?}"),
    }
}

fn bytes<const N: usize>(memory: &GuestMemoryMmap<impl Bitmap>, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
    bytes
}

fn zero_page(memory: &GuestMemoryMmap<impl Bitmap>) -> boot_params {
    memory.read_obj(GuestAddress(layout::BOOT_PARAMS.0)).unwrap()
}

#[test]
fn a_vmlinux_goes_to_its_physical_addresses() {
    let memory = guest(64);
    let entry = boot(&memory, &vmlinux()).unwrap();
    assert_eq!(entry.format, KernelFormat::Vmlinux);
    assert_eq!((entry.entry, entry.kernel_end), (Gpa(KERNEL_AT), Gpa(KERNEL_AT + 0x10_0000)));
    assert_eq!(bytes(&memory, KERNEL_AT), CODE);
    let page = zero_page(&memory);
    assert_eq!({ page.hdr.header }, 0x5372_6448);
    assert_eq!({ page.hdr.boot_flag }, 0xaa55);
}

#[test]
fn a_bzimage_is_loaded_at_its_preferred_address() {
    let memory = guest(64);
    let entry = boot(&memory, &bzimage()).unwrap();
    assert_eq!(entry.format, KernelFormat::BzImage);
    assert_eq!(
        (entry.entry, entry.kernel_end),
        (Gpa(KERNEL_AT + 0x200), Gpa(KERNEL_AT + INIT_SIZE))
    );
    assert_eq!(bytes(&memory, KERNEL_AT), CODE);
    let page = zero_page(&memory);
    assert_eq!({ page.hdr.version }, 0x020f);
    assert_eq!({ page.hdr.init_size }, INIT_SIZE as u32);
    assert_eq!({ page.hdr.type_of_loader }, 0xff);
    // The header ends at 0x26c. The following bytes in the file are code.
    assert_eq!({ page._pad7 }, [0; 36]);
}

#[test]
fn a_bzimage_keeps_its_alignment() {
    let mut kernel = bzimage();
    put(&mut kernel, 0x258, &(KERNEL_AT + 1).to_le_bytes());
    let entry = boot(&guest(64), &kernel).unwrap();
    assert_eq!(entry.entry, Gpa(KERNEL_AT + 0x20_0000 + 0x200));
    put(&mut kernel, 0x234, &[0]); // not relocatable
    assert_eq!(boot(&guest(64), &kernel).unwrap().entry, Gpa(KERNEL_AT + 1 + 0x200));
}

#[test]
fn zero_page_points_to_memory_map_cmdline_and_acpi() {
    let memory = guest(4096);
    let initrd: &[u8] = b"archive";
    boot_with(&memory, &[initrd]).unwrap();
    let page = zero_page(&memory);
    assert_eq!({ page.acpi_rsdp_addr }, layout::ACPI.0);
    assert_eq!(bytes(&memory, layout::ACPI.0), *b"RSD PTR ");
    assert_eq!({ page.hdr.cmd_line_ptr }, layout::CMDLINE.0 as u32);
    assert_eq!({ page.e820_entries }, 6);
    let last = page.e820_table[5];
    assert_eq!(({ last.addr }, { last.size }, { last.r#type }), (4 << 30, 1 << 30, 1));
    // The last page below initrd_addr_max.
    assert_eq!(({ page.hdr.ramdisk_image }, { page.hdr.ramdisk_size }), (0x7fff_f000, 8));
}

#[test]
fn the_command_line_ends_in_a_nul_and_has_a_limit() {
    let load = |cmdline: &str| {
        let memory = guest(64);
        let kernel = &mut Cursor::new(vmlinux());
        load_linux(&memory, kernel, &mut [], cmdline, VcpuCount::ONE).map(|_| memory)
    };
    assert_eq!(bytes(&load("quiet").unwrap(), layout::CMDLINE.0), *b"quiet\0");
    assert!(load(&"a".repeat(2047)).is_ok());
    let error = load(&"a".repeat(2048)).unwrap_err();
    assert!(matches!(error, BootError::CmdlineTooLong { length: 2048, limit: 2047 }));
    assert!(matches!(load("a\0b"), Err(BootError::CmdlineNul)));
}

#[test]
fn initrd_parts_follow_each_other_at_multiples_of_four() {
    let memory = guest(64);
    let initrd = boot_with(&memory, &[b"abcde", b"", b"fg", b"hijk"]).unwrap().initrd.unwrap();
    assert_eq!(initrd.start.0 % layout::PAGE_SIZE, 0);
    assert_eq!(initrd.end.0 - initrd.start.0, 16);
    assert_eq!(bytes(&memory, initrd.start.0), *b"abcde\0\0\0fg\0\0hijk");
    assert_eq!(boot_with(&memory, &[]).unwrap().initrd, None);
}

#[test]
fn an_initrd_file_is_read_from_its_start() {
    let mut file = tempfile();
    std::io::Write::write_all(&mut file, b"archive").unwrap();
    let memory = guest(64);
    let mut parts = [InitrdPart::Bytes(b"1234"), InitrdPart::File(&mut file, Path::new("/initrd"))];
    let kernel = &mut Cursor::new(bzimage());
    let entry = load_linux(&memory, kernel, &mut parts, "", VcpuCount::ONE).unwrap();
    assert_eq!(bytes(&memory, entry.initrd.unwrap().start.0), *b"1234archive\0");
}

/// Creates an unnamed file.
fn tempfile() -> std::fs::File {
    let name = format!("pvticket-initrd-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = std::fs::File::options();
    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[test]
fn an_initrd_may_fill_the_remaining_memory() {
    let memory = guest(20);
    let room = (20 << 20) - KERNEL_AT - INIT_SIZE;
    let initrd = vec![1; room as usize];
    let at = boot_with(&memory, &[&initrd]).unwrap().initrd.unwrap();
    assert_eq!(at.start, Gpa(KERNEL_AT + INIT_SIZE));
    let error = boot_with(&memory, &[&initrd, b"x"]).unwrap_err();
    assert!(
        matches!(error, BootError::InitrdTooLarge { size, .. } if size.0 == room + 4),
        "{error}"
    );
}

#[test]
fn invalid_kernels_are_reported() {
    let refusal_with = |mut image: Vec<u8>, offset, bytes: &[u8]| {
        put(&mut image, offset, bytes);
        refusal(&image)
    };
    for garbage in [&b""[..], b"M", b"text\n", &[0; 8192]] {
        assert!(matches!(refusal(garbage), ImageError::Unrecognised), "{garbage:.4x?}");
    }
    let mut cut = bzimage();
    put(&mut cut, 0, b"MZ");
    cut.truncate(bzimage::MIN_SIZE as usize - 1);
    assert!(matches!(refusal(&cut), ImageError::Truncated));
    assert!(matches!(refusal(b"#!/bin/sh\necho"), ImageError::OtherKind(FileKind::Script)));
    let packed = refusal(&[b"\x28\xb5\x2f\xfd", &vmlinux()[..]].concat()).to_string();
    assert_eq!(
        packed,
        "not a Linux kernel, but a file compressed with zstd: unpack it first (`zstd -dc`)"
    );
    assert!(matches!(refusal_with(vmlinux(), 4, &[1]), ImageError::ForeignElf)); // 32 bits
    assert!(matches!(refusal_with(vmlinux(), 18, &[183]), ImageError::ForeignElf)); // AArch64
    assert!(matches!(refusal_with(vmlinux(), 16, &[3]), ImageError::NotAKernel)); // shared object
    assert!(matches!(refusal(&elf(0x40_0000, 0x40_0000, 4096)), ImageError::NotAKernel));
    assert!(matches!(refusal_with(bzimage(), 0x236, &[0]), ImageError::Only32Bit));
    let old = refusal_with(bzimage(), 0x206, &[6, 2]);
    assert_eq!(old.to_string(), "boot protocol 2.06 is too old: 2.12 (Linux 3.8) is required");
}

/// A kernel produced by `objcopy -O binary`. The banner may be anywhere, even across the border of two reads.
#[test]
fn raw_kernels_are_recognised_by_their_banner() {
    const BANNER: &[u8] = b"Linux version 6.1.0 (builder)";
    for at in [100, (1 << 20) - BANNER.len(), (1 << 20) - 7, 1 << 20, 3 << 20] {
        let image = [&vec![0x90; at], BANNER].concat();
        assert!(matches!(refusal(&image), ImageError::Raw), "{at}");
    }
    assert!(matches!(refusal(&vec![0x90; (2 << 20) + 3]), ImageError::Unrecognised));
}

#[test]
fn a_truncated_kernel_is_never_booted() {
    for valid in [vmlinux(), bzimage()] {
        for length in 0..valid.len() {
            let error = boot(&guest(64), &valid[..length]).map(|_| length);
            // The last paragraph of a bzImage may lack up to 15 bytes.
            let short_paragraph = valid.len() - length < 16 && valid[0] != 0x7f;
            assert_eq!(error.is_err(), !short_paragraph, "{length} of {}", valid.len());
        }
    }
    assert!(matches!(refusal(&vmlinux()[..150]), ImageError::Truncated));
    // All segments are there, but the section headers are missing.
    let mut cut = vmlinux();
    let sections = cut.len() as u64;
    put(&mut cut, 40, &sections.to_le_bytes());
    put(&mut cut, 58, &[64, 0, 1, 0]); // size and number of section headers
    assert!(matches!(refusal(&cut), ImageError::Truncated));
    cut.extend([0; 64]);
    assert!(boot(&guest(64), &cut).is_ok());
    assert!(matches!(refusal(&bzimage()[..1030]), ImageError::Truncated));
}

#[test]
fn too_large_kernels_report_their_size() {
    for kernel in [vmlinux(), bzimage()] {
        let error = boot(&guest(16), &kernel).unwrap_err();
        let has = ByteSize::mib(16);
        assert!(matches!(error, BootError::Kernel(ImageError::TooLarge { needs, has: h })
            if needs > has && h == has));
    }
    let low = elf(0x8000, 0xffff_ffff_8100_0000, 4096);
    assert!(matches!(refusal(&low), ImageError::TooLow(0x10_0000)));
}

/// Sets every byte of the headers to various extremes. There must be no panic, and no write to boot data.
#[test]
fn hostile_headers_do_no_harm() {
    let memory = guest(64);
    for valid in [vmlinux(), bzimage()] {
        for offset in 0..valid.len() - CODE.len() {
            for width in [1, 2, 4, 8] {
                for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                    let mut image = valid.clone();
                    let end = (offset + width).min(image.len());
                    image[offset..end].fill(byte);
                    if let Ok(entry) = boot(&memory, &image) {
                        assert!(entry.entry >= layout::HIGH_RAM);
                        assert!(entry.kernel_end <= Gpa(64 << 20));
                    }
                }
            }
        }
    }
}

#[test]
fn the_boot_cpu_enters_in_long_mode_with_the_zero_page() {
    let entry = boot(&guest(64), &vmlinux()).unwrap();
    let mut sregs = kvm_sregs { cr0: 0x6000_0010, apic_base: 0xfee0_0900, ..Default::default() };
    let regs = linux_registers(&mut sregs, &entry);
    assert_eq!((regs.rip, regs.rsi, regs.rflags), (KERNEL_AT, layout::BOOT_PARAMS.0, 2));
    assert_eq!(sregs.cr0, 0x8005_0033, "caches on, paging on");
    assert_eq!((sregs.cr3, sregs.cr4, sregs.efer), (layout::PAGE_TABLES.0, 0x20, 0x500));
    assert_eq!(sregs.apic_base, 0xfee0_0900, "what is not ours stays");
}
