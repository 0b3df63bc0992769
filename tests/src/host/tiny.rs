//! Kernels of a few instructions on the local KVM, hardware or software.

use crate::{facts::need_software_kvm, prelude::*, product::BOOT_LIMIT};

kvm::tests![
    a_reset_after_a_panic_is_a_failure,
    an_unsupported_instruction_is_reported,
    no_line_of_an_8259_is_unmasked,
    stats_of_a_failed_guest_are_written,
    memory_of_any_size_is_accepted,
];

/// Builds a `pvticket boot` of this code on the local KVM.
pub fn boot(folder: &TempDir, code: &[u8]) -> anyhow::Result<Program> {
    Ok(boot_by(Program::new(binary()), folder, code)?.limit(BOOT_LIMIT))
}

/// Like [`boot`], with this program in place of the product.
pub fn boot_by(front: Program, folder: &TempDir, code: &[u8]) -> anyhow::Result<Program> {
    let kernel = files::put(folder, "vmlinux", &files::vmlinux(code))?;
    let initrd = files::put(folder, "initrd", &files::cpio(&[]))?;
    let boot = front.args(["boot", "--host", "direct", "--cpus", "1", "--kernel"]).args([kernel]);
    let boot = boot.args(["--initrd"]).args([initrd]);
    // A software KVM is refused for guest kernels, but can run a few instructions.
    Ok(boot.env("PVTICKET_TRUST_KVM", "1"))
}

/// With and without the panic's last line, and with text after it.
fn a_reset_after_a_panic_is_a_failure() -> anyhow::Result<()> {
    for end in ["", "CPU: 0\r\n---[ end Kernel panic - not syncing: why so ]---\r\n"] {
        let folder = files::scratch()?;
        let text = format!("[ 0.1] Kernel panic - not syncing: why so\r\n{end}");
        let ran = boot(&folder, &code::hello(&text))?.run()?;
        ran.fails(1, &["the guest's kernel panicked: why so"])?.stdout_is(&text)?;
    }
    Ok(())
}

fn an_unsupported_instruction_is_reported() -> anyhow::Result<()> {
    need_software_kvm()?;
    let folder = files::scratch()?;
    let ran = boot(&folder, code::INT3)?.run()?;
    ran.fails(1, &["cannot emulate", " cc ", "--host emulated", "vCPU 0 at 0x1000000"]).map(drop)
}

/// Masked, as by firmware: a kernel unaware of the 8259s would take a device's interrupt for an exception.
fn no_line_of_an_8259_is_unmasked() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    // in al, 0x21; mov bl, al; in al, 0xa1; and al, bl; xor al, 0xff; movzx eax, al
    let mut code =
        vec![0xe4, 0x21, 0x88, 0xc3, 0xe4, 0xa1, 0x20, 0xd8, 0x34, 0xff, 0x0f, 0xb6, 0xc0];
    // mov dx, EXIT; out dx, eax: the lines that either lets through
    let reports = [&code::dx(code::port::EXIT)[..], &[0xef], code::SPIN].concat();
    code.extend(reports);
    boot(&folder, &code)?.run()?.exits(0).map(drop)
}

fn stats_of_a_failed_guest_are_written() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let stats = folder.path().join("stats");
    let boot = boot(&folder, code::TRIPLE_FAULT)?.args(["--stats"]).args([&stats]);
    boot.run()?.fails(1, &["triple fault"])?;
    let stats = files::json(&stats)?;
    ensure!(count(&stats, "vmm/total/exits")? > 0, "no exits counted: {stats}");
    Ok(())
}

/// Regression: KVM refused sizes that are not multiples of a page.
fn memory_of_any_size_is_accepted() -> anyhow::Result<()> {
    for size in ["100000001", "99999K", "64M"] {
        let folder = files::scratch()?;
        let boot = boot(&folder, &code::hello("hello\n"))?.args(["--mem", size]);
        boot.run()?.exits(0)?.stdout_is("hello\n")?;
    }
    Ok(())
}
