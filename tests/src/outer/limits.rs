//! What is larger than it should be: files, sizes, outputs, limits of this system. Each ends with one
//! line that says what to do.

use std::{fs, path::Path};

use anyhow::{Context, ensure};

use crate::{
    files::{self, code},
    host::{need_kvm, need_root},
    process::Program,
    product::{self, pvticket},
    ran::Ran,
    suite::skip,
    tests,
};

tests![
    a_large_spec_is_read_at_once,
    files_without_an_end_are_refused,
    what_is_no_file_is_not_waited_for,
    memory_that_the_host_does_not_have_is_refused,
    too_few_open_files_are_said,
    the_limit_of_open_files_is_raised,
    output_has_a_limit_where_one_is_asked_for,
    a_full_disk_leaves_no_run_behind,
    two_runs_of_one_second_are_kept_apart,
];

/// The product behind a shell's words, which run it as `"$0" "$@"`.
fn behind(script: &str, args: &[&str]) -> Program {
    Program::new("/bin/sh").args(["-c", script]).args([product::binary()]).args(args)
}

/// A megabyte of seeds took half a minute, and a square of a thousand labels by a thousand seeds the
/// same. The limit is not one of performance: it is for what compares each with each.
fn a_large_spec_is_read_at_once() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let list = |from: u32, count: u32| {
        (from..from + count).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
    };
    let one = "vcpus = 2\nlocks = \"ticket\"\nrepetitions = 1\n";
    let square = |side: u32| {
        let labels: Vec<_> = (0..side).map(|n| format!("\"l{n}\"")).collect();
        format!("{one}labels = [{}]\nseeds = [{}]\n", labels.join(","), list(1, side))
    };
    let dry_run = |text: String| {
        let spec = files::put(&folder, "spec.toml", text.as_bytes())?;
        pvticket(["run", "--dry-run"]).args([spec]).limit(20).run()
    };
    let most = dry_run(format!("{one}seeds = [{}]\n", list(100_000, 100_000)))?.exits(0)?;
    ensure!(most.text()?.contains("100000 cells of 100000 points"), "{}", most.show());
    dry_run(square(300))?.exits(0)?;
    dry_run(format!("{one}seeds = [{}]\n", list(100_000, 140_000)))?.fails(2, &["140000 cells"])?;
    dry_run(square(1000))?.fails(2, &["1000000 cells: at most 100000"])?;
    let excludes = "[[exclude]]\nvcpus = 2\n".repeat(30_000);
    dry_run(format!("vcpus = [2, 3]\n{excludes}"))?.fails(2, &["30000 times [[exclude]]"])?;
    Ok(())
}

fn files_without_an_end_are_refused() -> anyhow::Result<()> {
    let refused = |args: &[&str], what: &str| {
        // Of the machine's memory no more than this may go.
        let program = behind("ulimit -v 1000000; exec \"$0\" \"$@\"", args);
        program.limit(20).run()?.fails(2, &[what]).map(drop)
    };
    refused(&["run", "/dev/zero"], "/dev/zero: it has more than 1 MiB")?;
    refused(&["boot", "--system-map", "/dev/zero"], "it has more than 64 MiB")?;
    refused(&["boot", "--kernel", "/dev/zero"], "not a regular file")
}

fn what_is_no_file_is_not_waited_for() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let fifo = folder.path().join("fifo");
    let dir = folder.path().join("run");
    fs::create_dir(&dir)?;
    for name in [&fifo, &dir.join("cells.jsonl")] {
        Program::new("mkfifo").args([name]).run()?.exits(0)?;
    }
    let name = fifo.to_str().context("a path")?;
    let replay = format!("replay:{name}");
    let refused = |args: &[&str], status: i32, what: &str| {
        pvticket(args).limit(20).run()?.fails(status, &[what]).map(drop)
    };
    refused(&["boot", "--kernel", name], 2, "not a regular file")?;
    refused(&["boot", "--initrd", name], 2, "not a regular file")?;
    refused(&["boot", "--system-map", name], 2, "a FIFO without a writer")?;
    refused(&["run", name], 2, "a FIFO without a writer")?;
    refused(&["compare", "--policy", &replay], 2, "not a regular file")?;
    let dir = dir.to_str().context("a path")?;
    refused(&["report", dir], 1, "not a regular file")?;
    refused(&["run", "--resume", dir], 1, "not a regular file")?;
    // What comes through a pipe is read.
    let piped = "echo 'vcpus = 2' | \"$0\" run /dev/stdin --dry-run";
    behind(piped, &[]).limit(20).run()?.exits(0)?;
    Ok(())
}

fn memory_that_the_host_does_not_have_is_refused() -> anyhow::Result<()> {
    for (size, what) in [
        ("1", "--mem 1 byte: a Linux guest needs 4 MiB"),
        ("1024T", "--mem 1024 TiB: this host has"),
        ("16777215G", "this host has"),
    ] {
        pvticket(["boot", "--mem", size, "--", "true"]).run()?.fails(2, &[what])?;
    }
    // What it has in part may be asked for: a guest takes what it touches.
    let info = fs::read_to_string("/proc/meminfo")?;
    let kib = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).context("a total")?;
        line.trim().trim_end_matches(" kB").parse::<u64>().context("a number")
    };
    let mem = format!("{}K", 2 * (kib("MemTotal:")? + kib("SwapTotal:")?));
    let ran = pvticket(["boot", "--mem", &mem, "--dry-run", "--", "true"]).run()?.exits(0)?;
    ran.one_line(&["this host has", "will be killed"]).map(drop)
}

/// A boot of one vCPU that runs this code.
fn boot(folder: &Path, code: &[u8]) -> anyhow::Result<Vec<String>> {
    let kernel = folder.join("vmlinux");
    fs::write(&kernel, files::vmlinux(code))?;
    let initrd = folder.join("initrd");
    fs::write(&initrd, files::cpio(&[]))?;
    let words = ["boot", "--host", "direct", "--cpus", "1", "--kernel"].map(String::from);
    let named = [kernel.display().to_string(), "--initrd".into(), initrd.display().to_string()];
    Ok(words.into_iter().chain(named).collect())
}

fn hello_with(limit: &str) -> anyhow::Result<Ran> {
    need_kvm()?;
    let folder = files::scratch()?;
    let words = boot(folder.path(), &code::hello("hello\n"))?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let script = format!("{limit}; exec \"$0\" \"$@\"");
    behind(&script, &words).env("PVTICKET_TRUST_KVM", "1").run()
}

fn too_few_open_files_are_said() -> anyhow::Result<()> {
    for limit in ["ulimit -n 8", "ulimit -n 12", "ulimit -n 16"] {
        hello_with(limit)?.fails(1, &["cannot", "ulimit -n"])?;
    }
    Ok(())
}

fn the_limit_of_open_files_is_raised() -> anyhow::Result<()> {
    hello_with("ulimit -S -n 12")?.exits(0)?.says("hello\n").map(drop)
}

fn output_has_a_limit_where_one_is_asked_for() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    // mov dx, 0x3f8; mov al, 'x'; out dx, al; back to the out
    let flood = [0x66, 0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfd];
    let words = boot(folder.path(), &flood)?;
    let program = pvticket(words).args(["--output-limit", "20K"]).env("PVTICKET_TRUST_KVM", "1");
    let ran = program.limit(60).run()?.fails(1, &["output", "more than --output-limit 20 KiB"])?;
    ensure!(ran.stdout == [b'x'; 20 << 10], "{} bytes\n{}", ran.stdout.len(), ran.show());
    Ok(())
}

/// A spec of one cell.
const SHORT: &str = "vcpus = 1\nlocks = \"ticket\"\nrepetitions = 1\nseconds = 0.05\n";

fn a_full_disk_leaves_no_run_behind() -> anyhow::Result<()> {
    need_kvm()?;
    need_root()?;
    let folder = files::scratch()?;
    let spec = files::put(&folder, "spec.toml", SHORT.as_bytes())?;
    let script = format!(
        "set -e; cd {0}; mkdir disk; mount -t tmpfs -o size=64k none disk; \
         cat /dev/zero >disk/full 2>/dev/null || :; \
         \"$@\" run {1} --dir disk/run 2>&1 && exit 9; \
         echo \"status $?; left: $(ls -A disk/run)\"; \
         rm disk/full; \"$@\" run {1} --dir disk/run 2>&1",
        folder.path().display(),
        spec.display()
    );
    let program = Program::new("unshare").args(["-m", "sh", "-c", &script, "sh"]);
    let ran = program.args([product::binary()]).run()?;
    if ran.errors().contains("Operation not permitted") {
        return skip("no mounts may be made here");
    }
    let ran = ran.exits(0)?;
    let text = ran.text()?;
    ensure!(text.contains("No space left"), "{}", ran.show());
    ensure!(text.contains("status 1; left: \n"), "{}", ran.show());
    ensure!(text.contains("1 cells done"), "{}", ran.show());
    Ok(())
}

fn two_runs_of_one_second_are_kept_apart() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let spec = files::put(&folder, "spec.toml", SHORT.as_bytes())?;
    let here = folder.path().display();
    let run = format!("\"$0\" run {} >/dev/null 2>&1", spec.display());
    let script = format!("cd {here}; {run} & {run} & {run}; one=$?; wait; exit $one");
    behind(&script, &[]).run()?.exits(0)?;
    let runs = fs::read_dir(folder.path().join("runs"))?.count();
    ensure!(runs == 3, "{runs} directories");
    Ok(())
}
