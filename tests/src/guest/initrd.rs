//! RAM disks that the user supplies.

use super::packed;
use crate::{
    files::{DIRECTORY, EXECUTABLE},
    prelude::*,
};

tests![
    user_init_runs_without_a_command,
    end_of_input_ends_the_shell_of_user_init,
    a_command_runs_with_the_users_files,
    a_command_may_not_use_the_ports_of_init,
    every_compression_is_unpacked,
    the_end_of_user_init_is_a_failure,
    a_panic_without_a_console_is_reported,
    a_cut_archive_is_a_failure => Long("2 s; another panic in make test"),
];

/// The mode of a symbolic link.
const LINK: u32 = 0o120_777;

/// A RAM disk with busybox as shell, an init with this line, a file, and a program that ends the VM.
fn user_initrd(line: &str) -> anyhow::Result<Vec<u8>> {
    let init = format!("#!/bin/sh\n{line}\nexec /bin/busybox reboot -f\n");
    let busybox = fs::read(files::cached("busybox/busybox")?).context("busybox")?;
    let exit = files::program(&[code::out(code::port::EXIT, 7).as_slice(), code::SPIN].concat());
    Ok(files::cpio(&[
        ("bin", DIRECTORY, b""),
        ("bin/busybox", EXECUTABLE, &busybox),
        ("bin/sh", LINK, b"busybox"),
        ("own", EXECUTABLE, b"the file\n"),
        ("exit", EXECUTABLE, &exit),
        ("init", EXECUTABLE, init.as_bytes()),
    ]))
}

/// Builds a boot with this RAM disk, whose file is deleted with the folder.
fn boot_with(archive: &[u8]) -> anyhow::Result<(TempDir, Boot)> {
    let folder = files::scratch()?;
    let initrd = files::put(&folder, "initrd", archive)?;
    Ok((folder, Boot::direct().option("--initrd", initrd)))
}

fn user_init_runs_without_a_command() -> anyhow::Result<()> {
    let (_folder, boot) = boot_with(&user_initrd("echo own init runs")?)?;
    let ran = boot.run()?.exits(0)?;
    ran.stdout_has(&["own init runs"])
}

fn end_of_input_ends_the_shell_of_user_init() -> anyhow::Result<()> {
    let (_folder, boot) = boot_with(&user_initrd("/bin/sh; echo left $((40+2))")?)?;
    let ran = boot.input(Input::Null).run()?.exits(0)?;
    ran.stdout_has(&["left 42"])
}

fn a_command_runs_with_the_users_files() -> anyhow::Result<()> {
    let (_folder, boot) = boot_with(&user_initrd("")?)?;
    let ran = boot.script("busybox cat /own; exit 5").run()?;
    ran.exits(5)?.stdout_is("the file\n").map(drop)
}

/// Init opens the ports to reach the VMM; with them, a command could end the VM or fake its measurements.
fn a_command_may_not_use_the_ports_of_init() -> anyhow::Result<()> {
    let (_folder, boot) = boot_with(&user_initrd("")?)?;
    let ran = boot.script("/exit; echo $?; exit 5").run()?;
    // SIGSEGV, from the general protection fault of the instruction.
    ran.exits(5)?.stdout_is("139\n").map(drop)
}

/// One boot, with an archive of each compression.
fn every_compression_is_unpacked() -> anyhow::Result<()> {
    let (_folder, boot) = boot_with(&[user_initrd("")?, packed::archives()].concat())?;
    let names = packed::names();
    let script =
        format!("busybox cat {}", names.iter().map(|name| format!("/{name} ")).collect::<String>());
    let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
    boot.script(&script).run()?.exits(0)?.stdout_is(&lines).map(drop)
}

/// A RAM disk whose init exits with 5, which makes the kernel panic.
fn exiting_init() -> Vec<u8> {
    // mov edi, 5; mov eax, 60 (exit); syscall
    let exit = files::program(&[0xbf, 5, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]);
    files::cpio(&[("init", EXECUTABLE, &exit)])
}

fn the_end_of_user_init_is_a_failure() -> anyhow::Result<()> {
    let (_folder, boot) = boot_with(&exiting_init())?;
    let reason =
        "pvticket: the guest's kernel panicked: Attempted to kill init! exitcode=0x00000500";
    boot.run()?.fails(1, &[reason]).map(drop)
}

/// Our kernel reports a panic to the VMM through a port.
fn a_panic_without_a_console_is_reported() -> anyhow::Result<()> {
    let (_folder, boot) = boot_with(&exiting_init())?;
    let ran = boot.with("--append loglevel=0").run()?;
    ran.fails(1, &["the guest's kernel panicked without a reason"]).map(drop)
}

/// The loader cannot see where a compressed archive ends.
fn a_cut_archive_is_a_failure() -> anyhow::Result<()> {
    let mut cut = packed::archive("gzip");
    cut.truncate(cut.len() / 2);
    let (_folder, boot) = boot_with(&cut)?;
    boot.run()?.fails(1, &["the guest's kernel panicked: "]).map(drop)
}
