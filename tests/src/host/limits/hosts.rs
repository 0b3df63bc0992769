//! Limits of the host: memory, descriptors, disk space.

use super::row::{
    End::{OneLine, Silent},
    Feed, Row, row,
};
use crate::{host::tiny, prelude::*};

/// A spec of one cell.
const SHORT: &str = "vcpus = 1\nlocks = \"ticket\"\nrepetitions = 1\nseconds = 0.05\n";

/// Bytes per argument; Linux accepts at most 128 KiB.
const ARGUMENT: usize = 120_000;

pub const ROWS: &[Row] = &[
    too_few("boot: ulimit -n 8", |folder| hello("ulimit -n 8", folder)),
    too_few("boot: ulimit -n 12", |folder| hello("ulimit -n 12", folder)),
    too_few("boot: ulimit -n 16", |folder| hello("ulimit -n 16", folder)),
    Row {
        input: "boot: ulimit -S -n 12",
        end: Silent(0),
        memory: 256,
        feed: |folder| hello("ulimit -S -n 12", folder),
        check: |_, ran| {
            ensure!(ran.stdout == b"hello\n", "{}", ran.show());
            Ok(())
        },
    },
    Row {
        end: OneLine(1, &["allow more with ulimit -n"]),
        ..too_few("emulate: ulimit -n 9", |_| {
            Ok(pvticket(["emulate", "--", "/init", "locks"]).after("ulimit -n 9"))
        })
    },
    // Opening the FIFO would wait for a writer before the emulated host starts.
    row("emulate: --in FIFO", OneLine(1, &["not a regular file"]), 512, |folder| {
        let fifo = folder.path().join("fifo");
        Program::new("mkfifo").args([&fifo]).run()?.exits(0)?;
        let file = format!("{}:/in/file", fifo.display());
        Ok(pvticket(["emulate", "--in", &file, "--", "/init", "locks"]).limit(60))
    }),
    Row {
        input: "emulate: 360 KB of arguments",
        end: Silent(5),
        memory: 2048,
        feed: |_| arguments(3),
        check: |_, ran| {
            let expected = format!("{}\n", 3 * ARGUMENT);
            ensure!(ran.stdout == expected.as_bytes(), "{}", ran.show());
            Ok(())
        },
    },
    row(
        "emulate: 1.2 MB of arguments",
        OneLine(1, &["the command line is too long for the emulated host", "in a file"]),
        2048,
        |_| arguments(10),
    ),
    row(
        "boot: --mem of twice what there is",
        OneLine(0, &["of memory and swap", "that use more are killed"]),
        64,
        |_| {
            let mem = format!("{}K", 2 * memory_and_swap()?);
            Ok(pvticket(["boot", "--mem", &mem, "--dry-run", "--", "true"]))
        },
    ),
    Row {
        input: "run: a full disk, and then room",
        end: OneLine(1, &["No space left"]),
        memory: 256,
        feed: |folder| {
            crate::facts::need_root()?;
            let spec = files::put(folder, "spec.toml", SHORT.as_bytes())?;
            // The remaining cells are run again when there is room; the messages of that run do not
            // count.
            let script = "cd \"$1\"; mkdir disk; mount -t tmpfs -o size=64k none disk || exit 77; \
                          cat /dev/zero >disk/full 2>/dev/null; shift; \
                          \"$0\" run \"$@\" --dir disk/run; status=$?; \
                          ls -A disk/run; rm disk/full; \
                          \"$0\" run \"$@\" --dir disk/run 2>&1 || exit 9; exit $status";
            let program = Program::new("unshare").args(["-m", "sh", "-c", script]);
            let program = program.args([binary(), folder.path(), &spec]);
            Ok(program.args(["--host", "direct"]))
        },
        check: |_, ran| {
            let text = ran.text()?;
            // No directory is left that a second run would mistake for a store.
            let first = text.lines().next().unwrap_or_default();
            ensure!(!first.contains("cells.jsonl"), "{}", ran.show());
            ensure!(text.contains("1 cell done"), "{}", ran.show());
            Ok(())
        },
    },
    Row {
        input: "run: three in one second",
        end: Silent(0),
        memory: 512,
        feed: |folder| {
            files::put(folder, "spec.toml", SHORT.as_bytes())?;
            let run = "\"$0\" run spec.toml >/dev/null 2>&1";
            let script = format!("cd \"$1\"; {run} & {run} & {run}; one=$?; wait; exit $one");
            let program = Program::new("/bin/sh").args(["-c", &script]);
            Ok(program.args([binary(), folder.path()]))
        },
        check: |folder, _| {
            let runs = fs::read_dir(folder.path().join("runs"))?.count();
            ensure!(runs == 3, "{runs} directories");
            Ok(())
        },
    },
];

/// A command that needs more descriptors than its limit allows.
const fn too_few(input: &'static str, feed: Feed) -> Row {
    row(input, OneLine(1, &["cannot", "allow more with ulimit -n"]), 256, feed)
}

/// Boots a guest that prints hello, after these shell commands.
fn hello(words: &str, folder: &TempDir) -> anyhow::Result<Program> {
    Ok(tiny::boot(folder, &code::hello("hello\n"))?.after(words))
}

/// Runs a program in the emulated host that prints the length of its arguments.
fn arguments(count: usize) -> anyhow::Result<Program> {
    let busybox = format!("{}:/in/busybox", files::cached("busybox/busybox")?.display());
    let script = "IFS=; all=\"$*\"; echo ${#all}; exit 5";
    let program = pvticket(["emulate", "--in", &busybox, "--", "/in/busybox", "sh", "-c", script]);
    Ok(program.args(["sh"]).args(vec!["x".repeat(ARGUMENT); count]))
}

/// Returns the host's memory and swap in KiB.
fn memory_and_swap() -> anyhow::Result<u64> {
    let info = fs::read_to_string("/proc/meminfo")?;
    let kib = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).context("a total")?;
        line.trim().trim_end_matches(" kB").parse::<u64>().context("a number")
    };
    Ok(kib("MemTotal:")? + kib("SwapTotal:")?)
}
