//! Kernels and RAM disks that cannot be booted: one line on how to proceed and exit status 1, before any VM
//! is started, on this host and in the emulated host.

use crate::prelude::*;

tests![
    files_of_other_types,
    truncated_kernels,
    kernels_larger_than_memory,
    truncated_unknown_and_oversized_ram_disks,
];

/// Expects the same error on both hosts. PVTICKET_TRUST_KVM: otherwise a software KVM would be
/// rejected first, because it cannot run guest kernels.
fn refused(boot: impl Fn(Boot) -> Boot, parts: &[&str]) -> anyhow::Result<()> {
    for host in ["emulated", "direct"] {
        let program = boot(Boot::on(host)).program().env("PVTICKET_TRUST_KVM", "1");
        program.run()?.fails(1, parts)?.stdout_is("").with_context(|| format!("--host {host}"))?;
    }
    Ok(())
}

fn kernel_refused(bytes: &[u8], parts: &[&str]) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let kernel = files::put(&folder, "kernel", bytes)?;
    let initrd = files::put(&folder, "initrd", &files::cpio(&[]))?;
    refused(|boot| boot.option("--kernel", &kernel).option("--initrd", &initrd), parts)
}

fn initrd_refused(bytes: &[u8], mem: &str, parts: &[&str]) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let kernel = files::put(&folder, "kernel", &files::vmlinux(code::SPIN))?;
    let initrd = files::put(&folder, "initrd", bytes)?;
    refused(
        |boot| boot.option("--kernel", &kernel).option("--initrd", &initrd).option("--mem", mem),
        parts,
    )
}

/// The message names the type of the file and a remedy.
fn files_of_other_types() -> anyhow::Result<()> {
    for (head, remedy) in [
        (&b"\x1f\x8b\x08"[..], "gzip -dc"),
        (b"\xfd7zXZ\0", "xz -dc"),
        (b"\x28\xb5\x2f\xfd", "zstd -dc"),
        (b"\x02\x21\x4c\x18", "lz4 -dc"),
        (b"BZh9", "bzip2 -dc"),
        (b"070701", "--initrd"),
    ] {
        let file = [head, &files::noise(5000)].concat();
        kernel_refused(&file, &["/kernel: not a Linux kernel, but", remedy]).context(remedy)?;
    }
    let raw = [&vec![0x90; 3 << 20], &b"Linux version 6.1.0 (x)\n"[..], &[0; 100]].concat();
    kernel_refused(&raw, &["/kernel: ", "vmlinux.bin", "bzImage"])?;
    let elf = std::fs::read(crate::product::binary()).context("the product's binary")?;
    for text in [b"#!/bin/sh\nexit 0\n".repeat(100), elf] {
        kernel_refused(&text, &["kernel", "not a Linux kernel"])?;
    }
    kernel_refused(b"", &["kernel"])?;
    let mut kernel = files::vmlinux(code::SPIN);
    kernel[18] = 183; // e_machine: AArch64
    kernel_refused(&kernel, &["kernel", "x86-64"])
}

fn truncated_kernels() -> anyhow::Result<()> {
    let kernel = files::vmlinux(code::SPIN);
    for length in [10, 63, 64, 119, kernel.len() - 1] {
        kernel_refused(&kernel[..length], &["kernel"])
            .with_context(|| format!("{length} bytes"))?;
    }
    kernel_refused(&kernel[..kernel.len() - 1], &["truncated"])?;
    for (file, header) in
        [(files::BUILT_KERNEL, 70), (files::BUILT_BZIMAGE, 0x240), (files::STOCK_KERNEL, 0x240)]
    {
        let file = files::cached(file)?;
        let size = file.metadata()?.len() as usize;
        for length in [header, 4096, 1 << 20, size / 3, size - 4096] {
            kernel_refused(&files::head(&file, length)?, &["kernel", "truncated"])
                .with_context(|| format!("{length} of {size} bytes of {}", file.display()))?;
        }
    }
    Ok(())
}

fn kernels_larger_than_memory() -> anyhow::Result<()> {
    let kernel = files::vmlinux_of_size(1 << 30, code::SPIN);
    kernel_refused(&kernel, &["kernel", "needs", "the machine has 512 MiB", "--mem"])?;
    let folder = files::scratch()?;
    let initrd = files::put(&folder, "initrd", &files::cpio(&[]))?;
    let stock = files::cached(files::STOCK_KERNEL)?;
    refused(
        |boot| boot.option("--kernel", &stock).option("--initrd", &initrd).with("--mem 16M"),
        &["kernel", "needs", "--mem"],
    )
}

fn truncated_unknown_and_oversized_ram_disks() -> anyhow::Result<()> {
    let archive = files::cpio(&[
        ("bin", files::DIRECTORY, b""),
        ("bin/program", files::EXECUTABLE, &files::noise(5000)),
        ("other", files::EXECUTABLE, &files::noise(300)),
    ]);
    for length in [60, 115, 600, 5000, archive.len() - 100, archive.len() - 8] {
        initrd_refused(&archive[..length], "512M", &["initrd", "truncated"])
            .with_context(|| format!("{length} of {} bytes", archive.len()))?;
    }
    initrd_refused(&b"not a RAM disk\n".repeat(50), "512M", &["initrd"])?;
    for (head, remedy) in [(&b"\x04\x22\x4d\x18"[..], "lz4 -l"), (b"070707", "cpio -o -H newc")] {
        let file = [head, &files::noise(500)].concat();
        initrd_refused(&file, "512M", &["/initrd is ", remedy]).context(remedy)?;
    }
    let large = files::cpio(&[("large", files::EXECUTABLE, &vec![0; 40 << 20])]);
    initrd_refused(&large, "32M", &["initrd", "memory"])
}
