//! RAM disks that the user supplies.

use std::fs;

use anyhow::{Context, ensure};

use crate::{
    files::{self, DIRECTORY, EXECUTABLE, code},
    product::Boot,
    tests,
};

tests![
    own_init_runs_without_a_command,
    a_command_runs_beside_the_own_files,
    a_command_may_not_use_the_ports_of_init,
];

/// The mode of a symbolic link.
const LINK: u32 = 0o120_777;

/// A RAM disk with busybox as its shell, an init that prints a line, a file, and a program that ends the machine.
fn own() -> anyhow::Result<Vec<u8>> {
    let busybox = fs::read(files::cached("busybox/busybox")?).context("busybox")?;
    let exit = files::program(&[code::out(code::port::EXIT, 7).as_slice(), code::SPIN].concat());
    Ok(files::cpio(&[
        ("bin", DIRECTORY, b""),
        ("bin/busybox", EXECUTABLE, &busybox),
        ("bin/sh", LINK, b"busybox"),
        ("own", EXECUTABLE, b"the file\n"),
        ("exit", EXECUTABLE, &exit),
        ("init", EXECUTABLE, b"#!/bin/sh\necho own init runs\nexec /bin/busybox reboot -f\n"),
    ]))
}

fn own_init_runs_without_a_command() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let initrd = files::put(&folder, "initrd", &own()?)?;
    let ran = Boot::direct().initrd(initrd).run()?.exits(0)?;
    ensure!(ran.text()?.contains("own init runs"), "{}", ran.show());
    Ok(())
}

fn a_command_runs_beside_the_own_files() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let initrd = files::put(&folder, "initrd", &own()?)?;
    let ran = Boot::direct().initrd(initrd).script("busybox cat /own; exit 5").run()?;
    ran.exits(5)?.says("the file\n").map(drop)
}

/// Init has them open, by which it talks to the VMM: a command could end the machine, or claim what it has measured.
fn a_command_may_not_use_the_ports_of_init() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let initrd = files::put(&folder, "initrd", &own()?)?;
    let ran = Boot::direct().initrd(initrd).script("/exit; echo $?; exit 5").run()?;
    // SIGSEGV, which is the general protection fault of the instruction.
    ran.exits(5)?.says("139\n").map(drop)
}
