//! Kernels and RAM disks that cannot be booted: one line that says what to do and exit status 1,
//! before any machine is started, on this host or in the emulated one.

use std::path::Path;

use anyhow::Context;

use crate::{
    files::{self, code},
    product::{Boot, pvticket},
    tests,
};

tests![
    text_as_kernel,
    other_files_as_kernel,
    raw_code_as_kernel,
    a_kernel_is_checked_before_a_comparison,
    empty_file_as_kernel,
    own_binary_as_kernel,
    kernel_for_another_machine,
    truncated_made_up_vmlinux,
    truncated_built_vmlinux,
    truncated_built_bzimage,
    truncated_stock_bzimage,
    kernel_larger_than_memory,
    stock_kernel_larger_than_memory,
    truncated_initrd,
    text_as_initrd,
    archives_that_linux_does_not_unpack,
    initrd_larger_than_memory,
];

/// Expects the same refusal on both hosts. PVTICKET_TRUST_KVM: otherwise a software KVM would be
/// refused first, because it cannot run guest kernels.
fn refused(boot: impl Fn(Boot) -> Boot, parts: &[&str]) -> anyhow::Result<()> {
    for host in ["emulated", "direct"] {
        let program = boot(Boot::on(host)).program().env("PVTICKET_TRUST_KVM", "1");
        program.run()?.fails(1, parts)?.says("").with_context(|| format!("--host {host}"))?;
    }
    Ok(())
}

fn kernel_refused(bytes: &[u8], parts: &[&str]) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let kernel = files::put(&folder, "kernel", bytes)?;
    let initrd = files::put(&folder, "initrd", &files::cpio(&[]))?;
    refused(|boot| boot.kernel(&kernel).initrd(&initrd), parts)
}

fn initrd_refused(bytes: &[u8], mem: &str, parts: &[&str]) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let kernel = files::put(&folder, "kernel", &files::vmlinux(code::SPIN))?;
    let initrd = files::put(&folder, "initrd", bytes)?;
    refused(|boot| boot.kernel(&kernel).initrd(&initrd).mem(mem), parts)
}

fn text_as_kernel() -> anyhow::Result<()> {
    kernel_refused(&b"#!/bin/sh\nexit 0\n".repeat(100), &["kernel", "not a Linux kernel"])
}

/// The message says what the file is, and what to do.
fn other_files_as_kernel() -> anyhow::Result<()> {
    for (head, remedy) in [
        (&b"\x1f\x8b\x08"[..], "gzip -dc"),
        (b"\xfd7zXZ\0", "xz -dc"),
        (b"\x28\xb5\x2f\xfd", "zstd -dc"),
        (b"\x02\x21\x4c\x18", "lz4 -dc"),
        (b"BZh9", "bzip2 -dc"),
        (b"!<arch>\ndebian-binary   ", "dpkg -x"),
        (b"070701", "--initrd"),
    ] {
        let file = [head, &files::noise(5000)].concat();
        kernel_refused(&file, &["/kernel: not a Linux kernel, but", remedy]).context(remedy)?;
    }
    Ok(())
}

fn raw_code_as_kernel() -> anyhow::Result<()> {
    let code = [&vec![0x90; 3 << 20], &b"Linux version 6.1.0 (x)\n"[..], &[0; 100]].concat();
    kernel_refused(&code, &["/kernel: ", "vmlinux.bin", "bzImage"])
}

/// Regression: the workers in the emulated host found the mistake, after an empty table was printed.
fn a_kernel_is_checked_before_a_comparison() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let packed = files::put(&folder, "vmlinux.zst", b"\x28\xb5\x2f\xfd and more")?;
    let compare = |kernel: &Path| {
        pvticket(["compare", "--guest", "linux", "--vcpus", "1", "--kernel"]).args([kernel]).run()
    };
    compare(&packed)?.fails(1, &["vmlinux.zst: ", "zstd -dc"])?.says("")?;
    compare(folder.path())?.fails(2, &["--kernel", "it is a directory"])?.says("")?;
    files::put(&folder, "vmlinux", &files::vmlinux(code::SPIN))?;
    compare(folder.path())?
        .fails(2, &["it is a directory: name the kernel in it", "/vmlinux"])?
        .says("")
        .map(drop)
}

fn empty_file_as_kernel() -> anyhow::Result<()> {
    kernel_refused(b"", &["kernel"])
}

fn own_binary_as_kernel() -> anyhow::Result<()> {
    let own = std::fs::read(crate::product::binary()).context("the product's binary")?;
    kernel_refused(&own, &["kernel", "not a Linux kernel"])
}

fn kernel_for_another_machine() -> anyhow::Result<()> {
    let mut kernel = files::vmlinux(code::SPIN);
    kernel[18] = 183; // e_machine: AArch64
    kernel_refused(&kernel, &["kernel", "x86-64"])
}

fn truncated_made_up_vmlinux() -> anyhow::Result<()> {
    let kernel = files::vmlinux(code::SPIN);
    for length in [10, 63, 64, 119, kernel.len() - 1] {
        kernel_refused(&kernel[..length], &["kernel"])
            .with_context(|| format!("{length} bytes"))?;
    }
    kernel_refused(&kernel[..kernel.len() - 1], &["truncated"])
}

fn truncated(file: &str, lengths: &[usize]) -> anyhow::Result<()> {
    let file = files::cached(file)?;
    let all = file.metadata()?.len() as usize;
    for length in lengths.iter().copied().chain([all / 3, all - 4096]) {
        kernel_refused(&files::head(&file, length)?, &["kernel", "truncated"])
            .with_context(|| format!("{length} of {all} bytes"))?;
    }
    Ok(())
}

fn truncated_built_vmlinux() -> anyhow::Result<()> {
    truncated(files::BUILT_KERNEL, &[70, 4096, 1 << 20])
}

fn truncated_built_bzimage() -> anyhow::Result<()> {
    truncated(files::BUILT_BZIMAGE, &[0x240, 4096, 1 << 20])
}

fn truncated_stock_bzimage() -> anyhow::Result<()> {
    truncated(files::STOCK_KERNEL, &[0x240, 4096, 1 << 20])
}

fn kernel_larger_than_memory() -> anyhow::Result<()> {
    let kernel = files::vmlinux_of(1 << 30, code::SPIN);
    kernel_refused(&kernel, &["kernel", "needs", "the machine has 512 MiB", "--mem"])
}

fn too_large(kernel: &Path) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let initrd = files::put(&folder, "initrd", &files::cpio(&[]))?;
    refused(|boot| boot.kernel(kernel).initrd(&initrd).mem("16M"), &["kernel", "needs", "--mem"])
}

fn stock_kernel_larger_than_memory() -> anyhow::Result<()> {
    too_large(&files::cached(files::STOCK_KERNEL)?)
}

fn truncated_initrd() -> anyhow::Result<()> {
    let whole = files::cpio(&[
        ("bin", files::DIRECTORY, b""),
        ("bin/program", files::EXECUTABLE, &files::noise(5000)),
        ("other", files::EXECUTABLE, &files::noise(300)),
    ]);
    for length in [60, 115, 600, 5000, whole.len() - 100, whole.len() - 8] {
        initrd_refused(&whole[..length], "512M", &["initrd", "truncated"])
            .with_context(|| format!("{length} of {} bytes", whole.len()))?;
    }
    Ok(())
}

fn text_as_initrd() -> anyhow::Result<()> {
    initrd_refused(&b"not a RAM disk\n".repeat(50), "512M", &["initrd"])
}

fn archives_that_linux_does_not_unpack() -> anyhow::Result<()> {
    for (head, remedy) in [(&b"\x04\x22\x4d\x18"[..], "lz4 -l"), (b"070707", "cpio -o -H newc")] {
        let file = [head, &files::noise(500)].concat();
        initrd_refused(&file, "512M", &["/initrd is ", remedy]).context(remedy)?;
    }
    Ok(())
}

fn initrd_larger_than_memory() -> anyhow::Result<()> {
    let bytes = vec![0; 40 << 20];
    let whole = files::cpio(&[("large", files::EXECUTABLE, &bytes)]);
    initrd_refused(&whole, "32M", &["initrd", "memory"])
}
