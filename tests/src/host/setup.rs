//! `pvticket setup`: which scripts it runs, and what it makes of them. The scripts here are the test's own; what the real ones
//! do is tried by `make package-test` and used by all that boots.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    files,
    process::Program,
    product::{binary, pvticket},
    tests,
};

tests![
    what_the_scripts_make_is_summed,
    a_part_that_fails_is_named_and_the_others_are_made,
    a_script_that_makes_nothing_is_found_out,
    scripts_are_beside_the_program,
    a_cache_of_everybody_is_refused,
    a_signal_ends_the_scripts_in_order,
];

const BUSYBOX: &str = "guest-kernel-config/setup.sh";
const KERNEL: &str = "guest-kernel-config/linux/build.sh";

/// A script that puts `from` into the cache.
fn makes(file: &str, from: &Path) -> String {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    format!(
        "mkdir -p $PVTICKET_CACHE/{}\ncp {} $PVTICKET_CACHE/{file}\necho made of $1$FLAVOUR\n",
        folder.display(),
        from.display()
    )
}

fn data(root: &Path, scripts: &[(&str, &str)]) -> anyhow::Result<()> {
    for (name, text) in scripts {
        let file = root.join(name);
        fs::create_dir_all(file.parent().context("a folder")?)?;
        fs::write(file, text)?;
    }
    Ok(())
}

fn setup(folder: &TempDir, words: &[&str]) -> Program {
    let program = pvticket([&["setup"], words].concat());
    program.env("PVTICKET_DATA", folder.path()).env("PVTICKET_CACHE", folder.path().join("cache"))
}

fn sum_of(file: &Path) -> anyhow::Result<String> {
    Ok(Program::new("sha256sum").args([file]).run()?.exits(0)?.text()?.to_owned())
}

fn what_the_scripts_make_is_summed() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    // Any static program will do.
    data(folder.path(), &[(BUSYBOX, &makes("busybox/busybox", binary()))])?;
    let ran = setup(&folder, &["busybox"]).run()?.exits(0)?;
    let sum = sum_of(&folder.path().join("cache/busybox/busybox"))?;
    let ran = ran.says(&sum)?;
    ran.complains(&["[1/1] busybox: A static busybox for the guest\n", "\nmade of --busybox\n"])?;
    let listed = setup(&folder, &["--list", "busybox", "kernel"]).run()?.exits(0)?;
    let lines: Vec<_> = listed.text()?.lines().collect();
    ensure!(lines.len() == 2, "{lines:?}");
    ensure!(lines[0].starts_with("busybox       there ") && lines[1].contains("not there"));
    Ok(())
}

fn a_part_that_fails_is_named_and_the_others_are_made() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let kernel = makes("kernel/current/vmlinux", Path::new("/proc/version"));
    data(folder.path(), &[(BUSYBOX, "echo no mirror >&2; exit 3"), (KERNEL, &kernel)])?;
    let ran = setup(&folder, &["busybox", "kernel"]).run()?.exits(1)?;
    let ran = ran.says(&sum_of(&folder.path().join("cache/kernel/current/vmlinux"))?)?;
    ran.complains(&[
        "\nno mirror\n[1/2] busybox: failed (exit status: 3)",
        "\nmade of pvticket\n",
        "\npvticket: without busybox: see above",
    ])?;
    setup(&folder, &["sausage"]).run()?.fails(2, &["'sausage'", "kernel-stock"]).map(drop)
}

fn a_script_that_makes_nothing_is_found_out() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    data(folder.path(), &[(BUSYBOX, ""), (KERNEL, "exit 0")])?;
    let ran = setup(&folder, &["kernel"]).run()?.exits(1)?.says("")?;
    ran.complains(&["[1/1] kernel: no PV ticketlock kernel at", "without kernel"]).map(drop)
}

/// As installed: a program in `bin`, its scripts in `share/pvticket`.
fn scripts_are_beside_the_program() -> anyhow::Result<()> {
    let prefix = files::scratch()?;
    let program = prefix.path().join("bin/pvticket");
    fs::create_dir(prefix.path().join("bin"))?;
    fs::copy(binary(), &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let run = || {
        let installed = Program::new(program.clone()).args(["setup", "busybox"]);
        installed.env("PVTICKET_DATA", "").env("PVTICKET_CACHE", prefix.path().join("cache")).run()
    };
    run()?.fails(1, &["PVTICKET_DATA", "share/pvticket"])?;
    let script = makes("busybox/busybox", binary());
    data(&prefix.path().join("share/pvticket"), &[(BUSYBOX, &script)])?;
    run()?.exits(0)?.complains(&["made of --busybox"])?;
    let named = Program::new(program.clone()).args(["setup"]).env("PVTICKET_DATA", "/nowhere");
    named.run()?.fails(1, &["PVTICKET_DATA=/nowhere has no"]).map(drop)
}

/// What is put there is executed later. Doctor and the emulated host look at it, too.
fn a_cache_of_everybody_is_refused() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let cache = folder.path().join("cache");
    let (qemu, ran) =
        (cache.join("qemu/current/bin/qemu-system-x86_64"), folder.path().join("ran"));
    data(folder.path(), &[(BUSYBOX, &format!("touch {}", ran.display()))])?;
    fs::create_dir_all(qemu.parent().context("a folder")?)?;
    fs::write(&qemu, format!("#!/bin/sh\ntouch {}\n", ran.display()))?;
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777))?;
    let who = format!("everybody may write to {}", cache.display());
    setup(&folder, &["busybox"]).run()?.fails(1, &["nothing is put into the cache", &who])?;
    let told = pvticket(["doctor"]).env("PVTICKET_CACHE", &cache).env("PVTICKET_QEMU", "").run()?;
    ensure!(
        told.text()?.contains(&format!("the cache can be changed by others: {who}")),
        "{}",
        told.show()
    );
    ensure!(!ran.exists(), "it was executed");
    Ok(())
}

fn a_signal_ends_the_scripts_in_order() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let left: PathBuf = folder.path().join("left");
    // The script's own child holds its output open, too.
    let script =
        format!("trap 'rm {0}; exit 9' TERM; touch {0}; sleep 1000 & wait", left.display());
    data(folder.path(), &[(BUSYBOX, &script)])?;
    let mut running = setup(&folder, &["busybox", "kernel"]).start()?;
    running.wait_until("the script runs", || left.exists())?;
    running.signal(Signal::TERM)?;
    // Its child is not waited for: the time limit is shorter than that lives.
    let ran = running.wait()?.exits(143)?;
    ensure!(!left.exists(), "the script was not asked to end\n{}", ran.show());
    ensure!(!ran.errors().contains("[2/2]"), "it went on\n{}", ran.show());
    Ok(())
}
