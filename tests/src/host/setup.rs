//! `pvticket setup`: the scripts that it runs, and its use of their results. The scripts here are the test's
//! own. `make package-test` tries the real scripts, and every boot uses their results.

use std::os::unix::fs::{PermissionsExt, symlink};

use crate::{files::EXECUTABLE, prelude::*};

tests![
    results_have_checksums,
    a_failed_part_is_named_and_others_are_made,
    a_script_without_a_result_fails,
    scripts_are_found_next_to_the_program,
    a_world_writable_cache_is_rejected,
    a_folder_writable_by_all_is_rejected,
    no_emulator_in_a_world_writable_cache_is_started,
    a_signal_ends_the_scripts_in_order,
];

const BUSYBOX: &str = "guest-kernel-config/setup.sh";
const KERNEL: &str = "guest-kernel-config/linux/build.sh";

/// Returns a script that puts `from` into the cache as `file`.
fn makes(file: &str, from: &Path) -> String {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    format!(
        "mkdir -p $PVTICKET_CACHE/{}\ncp {} $PVTICKET_CACHE/{file}\necho made of $1$FLAVOUR $KERNEL\n",
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

fn results_have_checksums() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    // Any static program will do.
    data(folder.path(), &[(BUSYBOX, &makes("busybox/busybox", binary()))])?;
    let ran = setup(&folder, &["busybox"]).run()?.exits(0)?;
    let sum = sum_of(&folder.path().join("cache/busybox/busybox"))?;
    let ran = ran.stdout_is(&sum)?;
    ran.stderr_has(&["[1/1] busybox: Static busybox for guests\n", "\nmade of --busybox\n"])?;
    let listed = setup(&folder, &["--list", "busybox", "kernel"]).run()?.exits(0)?;
    let lines: Vec<_> = listed.text()?.lines().collect();
    ensure!(lines.len() == 2, "{lines:?}");
    ensure!(lines[0].starts_with("busybox  present ") && lines[1].contains("missing"));
    Ok(())
}

fn a_failed_part_is_named_and_others_are_made() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let kernel = makes("kernel/pvticket-6.12/vmlinux", Path::new("/proc/version"));
    data(folder.path(), &[(BUSYBOX, "echo no mirror >&2; exit 3"), (KERNEL, &kernel)])?;
    let ran = setup(&folder, &["busybox", "kernel"]).run()?.exits(1)?;
    let ran = ran.stdout_is(&sum_of(&folder.path().join("cache/kernel/pvticket-6.12/vmlinux"))?)?;
    ran.stderr_has(&[
        "\nno mirror\n[1/2] busybox: failed (exit status: 3)",
        "\nmade of pvticket 6.12\n",
        "\npvticket: failed: busybox; see above",
    ])?;
    // Flavour and version of a kernel reach the script.
    let kernel = makes("kernel/stock-pvqspinlock-6.1/vmlinux", Path::new("/proc/version"));
    data(folder.path(), &[(KERNEL, &kernel)])?;
    let ran = setup(&folder, &["kernel-stock-6.1"]).run()?.exits(0)?;
    ran.stderr_has(&["\nmade of stock-pvqspinlock 6.1\n"]).map(drop)
}

fn a_script_without_a_result_fails() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    data(folder.path(), &[(BUSYBOX, ""), (KERNEL, "exit 0")])?;
    let ran = setup(&folder, &["kernel"]).run()?.exits(1)?.stdout_is("")?;
    ran.stderr_has(&[
        "[1/1] kernel: no kernel of Linux 6.12 with PV ticketlocks at",
        "failed: kernel",
    ])
    .map(drop)
}

/// The installed layout: a program in `bin`, its scripts in `share/pvticket`.
fn scripts_are_found_next_to_the_program() -> anyhow::Result<()> {
    let prefix = files::scratch()?;
    let program = prefix.path().join("bin/pvticket");
    fs::create_dir(prefix.path().join("bin"))?;
    files::install(binary(), &program)?;
    let run = || {
        let installed = Program::new(program.clone()).args(["setup", "busybox"]);
        installed.env("PVTICKET_DATA", "").env("PVTICKET_CACHE", prefix.path().join("cache")).run()
    };
    run()?.fails(1, &["PVTICKET_DATA", "share/pvticket"])?;
    let script = makes("busybox/busybox", binary());
    data(&prefix.path().join("share/pvticket"), &[(BUSYBOX, &script)])?;
    run()?.exits(0)?.stderr_has(&["made of --busybox"]).map(drop)
}

/// A cache that everybody may write to, and a file that exists once its emulator has been executed.
struct OpenCache {
    folder: TempDir,
    cache: PathBuf,
    ran: PathBuf,
}

impl OpenCache {
    fn new() -> anyhow::Result<Self> {
        let folder = files::scratch()?;
        let [cache, ran] = ["cache", "ran"].map(|name| folder.path().join(name));
        let qemu = cache.join("qemu/current/bin/qemu-system-x86_64");
        fs::create_dir_all(qemu.parent().context("a folder")?)?;
        files::script(&qemu, &format!("touch {}", ran.display()))?;
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o777))?;
        Ok(Self { folder, cache, ran })
    }

    fn error(&self) -> String {
        format!("everybody may write to {}", self.cache.display())
    }

    fn pvticket(&self, words: &[&str]) -> Program {
        pvticket(words).env("PVTICKET_CACHE", &self.cache).env("PVTICKET_QEMU", "")
    }
}

/// Files in the cache are executed later. `doctor` checks the cache, too.
fn a_world_writable_cache_is_rejected() -> anyhow::Result<()> {
    let open = OpenCache::new()?;
    data(open.folder.path(), &[(BUSYBOX, &format!("touch {}", open.ran.display()))])?;
    let error = open.error();
    let refused = setup(&open.folder, &["busybox"]).run()?;
    refused.fails(1, &["the cache is not used", &error])?;
    let doctor = open.pvticket(&["doctor"]).run()?;
    doctor.stdout_has(&[&format!("other users can change the cache: {error}")])?;
    ensure!(!open.ran.exists(), "it was executed");
    Ok(())
}

/// All places where a part's script finds or puts something: folders, and files that it relies on.
fn a_folder_writable_by_all_is_rejected() -> anyhow::Result<()> {
    const FETCH: &str = "guest-kernel-config/host/fetch.sh";
    const DISK: &str = "guest-kernel-config/postgres/fetch.sh";
    for (part, script, place) in [
        ("busybox", BUSYBOX, "busybox"),
        ("busybox", BUSYBOX, "busybox/busybox"),
        ("host", FETCH, "host"),
        ("host", FETCH, "qemu/8.2/bin"),
        ("host-7", FETCH, "host-7"),
        ("kernel", KERNEL, "kernel"),
        ("kernel", KERNEL, "kernel/0123456789abcdef"),
        ("kernel-stock-7", KERNEL, "source"),
        ("kernel", KERNEL, "source/partial"),
        ("kernel", KERNEL, "source/linux-source-6.12_1_all.deb.sha256"),
        ("guest-disk", DISK, "guest-disk"),
    ] {
        let folder = files::scratch()?;
        let [cache, ran] = ["cache", "ran"].map(|name| folder.path().join(name));
        let open = cache.join(place);
        fs::create_dir_all(open.parent().context("a folder")?)?;
        if place.contains('.') && !place.ends_with("bin") || place == "busybox/busybox" {
            fs::write(&open, "")?;
        } else {
            fs::create_dir(&open)?;
        }
        data(folder.path(), &[(BUSYBOX, ""), (script, &format!("touch {}", ran.display()))])?;
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777))?;
        let refused = setup(&folder, &[part]).run()?;
        refused.fails(1, &[&format!("everybody may write to {}", open.display())])?;
        ensure!(!ran.exists(), "{part}: its script ran, although all may write to {place}");
    }
    Ok(())
}

/// Each command that starts an emulator rejects the cache first.
fn no_emulator_in_a_world_writable_cache_is_started() -> anyhow::Result<()> {
    let open = OpenCache::new()?;
    // With a kernel for the emulator, nothing else is missing.
    if let Ok(kernel) = files::cached(files::STOCK_KERNEL) {
        let host = kernel.ancestors().nth(2).context("a folder")?;
        symlink(host, open.cache.join("host"))?;
    }
    let kernel = files::put(&open.folder, "vmlinux", &files::vmlinux(code::SPIN))?;
    let initrd = files::cpio(&[("init", EXECUTABLE, b"#!/bin/sh\n")]);
    let initrd = files::put(&open.folder, "initrd", &initrd)?;
    let spec = b"vcpus = 1\nlocks = \"ticket\"\npolicies = \"host\"\nrepetitions = 1\n";
    let spec = files::put(&open.folder, "spec.toml", spec)?;
    let boot = ["boot", "--host", "emulated", "--mem", "64M", "--kernel"];
    let boot = open.pvticket(&boot).args([&kernel]).args(["--initrd"]).args([&initrd]);
    let run = open.pvticket(&["run", "--host", "emulated"]).args([&spec]);
    let run = run.args(["--dir"]).args([open.folder.path().join("results")]);
    let emulate = open.pvticket(&["emulate", "--mem", "64M", "--", "/init", "locks"]);
    for command in [boot, run, emulate] {
        let refused = command.run()?;
        refused
            .fails(1, &["the QEMU of the cache is not executed", &open.error()])?
            .stdout_is("")?;
        ensure!(!open.ran.exists(), "it was executed");
    }
    // Other users could have put links there.
    ensure!(!open.cache.join("evidence").exists(), "something was written into the cache");
    Ok(())
}

fn a_signal_ends_the_scripts_in_order() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let marker: PathBuf = folder.path().join("left");
    // The script's own child holds its output open, too.
    let script =
        format!("trap 'rm {0}; exit 9' TERM; touch {0}; sleep 1000 & wait", marker.display());
    data(folder.path(), &[(BUSYBOX, &script)])?;
    let mut running = setup(&folder, &["busybox", "kernel"]).start()?;
    running.wait_until("the script runs", || marker.exists())?;
    running.signal(Signal::TERM)?;
    // The script's child is not waited for: it would outlive the time limit.
    let ran = running.wait()?.exits(143)?;
    ensure!(!marker.exists(), "the script was not asked to end\n{}", ran.show());
    ensure!(!ran.errors().contains("[2/2]"), "it went on\n{}", ran.show());
    Ok(())
}
