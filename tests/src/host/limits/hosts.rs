//! What the host has: memory, descriptors, room on its disks.

use std::fs;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::row::{
    End::{OneLine, Silent},
    Row, nothing_else,
};
use crate::{
    files::{self, code},
    host::tiny,
    process::Program,
    product::{binary, pvticket},
};

/// A spec of one cell.
const SHORT: &str = "vcpus = 1\nlocks = \"ticket\"\nrepetitions = 1\nseconds = 0.05\n";

/// Bytes of an argument; Linux takes no more than 128 KiB of one.
const ARGUMENT: usize = 120_000;

pub const ROWS: &[Row] = &[
    Row {
        input: "boot: ulimit -n 8",
        limit: "descriptors",
        end: OneLine(1, &["cannot", "allow more with ulimit -n"]),
        memory: 256,
        feed: |folder| hello("ulimit -n 8", folder),
        check: nothing_else,
    },
    Row {
        input: "boot: ulimit -n 12",
        limit: "descriptors",
        end: OneLine(1, &["cannot", "allow more with ulimit -n"]),
        memory: 256,
        feed: |folder| hello("ulimit -n 12", folder),
        check: nothing_else,
    },
    Row {
        input: "boot: ulimit -n 16",
        limit: "descriptors",
        end: OneLine(1, &["cannot", "allow more with ulimit -n"]),
        memory: 256,
        feed: |folder| hello("ulimit -n 16", folder),
        check: nothing_else,
    },
    Row {
        input: "boot: ulimit -S -n 12",
        limit: "the hard limit",
        end: Silent(0),
        memory: 256,
        feed: |folder| hello("ulimit -S -n 12", folder),
        check: |_, ran| {
            ensure!(ran.stdout == b"hello\n", "{}", ran.show());
            Ok(())
        },
    },
    Row {
        input: "emulate: ulimit -n 9",
        limit: "descriptors",
        end: OneLine(1, &["allow more with ulimit -n"]),
        memory: 256,
        feed: |_| Ok(pvticket(["emulate", "--", "/init", "locks"]).behind("ulimit -n 9")),
        check: nothing_else,
    },
    Row {
        input: "emulate: 360 KB of arguments",
        limit: "1 MiB",
        end: Silent(5),
        memory: 2048,
        feed: |_| arguments(3),
        check: |_, ran| {
            let given = format!("{}\n", 3 * ARGUMENT);
            ensure!(ran.stdout == given.as_bytes(), "{}", ran.show());
            Ok(())
        },
    },
    Row {
        input: "emulate: 1.2 MB of arguments",
        limit: "1 MiB",
        end: OneLine(1, &["the command line is too long for the emulated host", "in a file"]),
        memory: 2048,
        feed: |_| arguments(10),
        check: nothing_else,
    },
    Row {
        input: "boot: --mem 1",
        limit: "4 MiB",
        end: OneLine(2, &["--mem 1 byte: a Linux guest needs 4 MiB"]),
        memory: 64,
        feed: |_| Ok(pvticket(["boot", "--mem", "1", "--", "true"])),
        check: nothing_else,
    },
    Row {
        input: "boot: --mem 1024T",
        limit: "the host's memory",
        end: OneLine(2, &["--mem 1024 TiB: this host has"]),
        memory: 64,
        feed: |_| Ok(pvticket(["boot", "--mem", "1024T", "--", "true"])),
        check: nothing_else,
    },
    Row {
        input: "boot: --mem 16777215G",
        limit: "the host's memory",
        end: OneLine(2, &["this host has"]),
        memory: 64,
        feed: |_| Ok(pvticket(["boot", "--mem", "16777215G", "--", "true"])),
        check: nothing_else,
    },
    Row {
        input: "boot: --mem of twice what there is",
        limit: "what it touches",
        end: OneLine(0, &["this host has", "will be killed"]),
        memory: 64,
        feed: |_| {
            let mem = format!("{}K", 2 * memory_and_swap()?);
            Ok(pvticket(["boot", "--mem", &mem, "--dry-run", "--", "true"]))
        },
        check: nothing_else,
    },
    Row {
        input: "run: a full disk, and then room",
        limit: "the disk",
        end: OneLine(1, &["No space left"]),
        memory: 256,
        feed: |folder| {
            crate::facts::need_root()?;
            let spec = files::put(folder, "spec.toml", SHORT.as_bytes())?;
            // What is left is tried again when there is room; what that says is no business of stderr.
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
            // No directory that a second run would take for one with a run in it.
            ensure!(
                !text.lines().next().is_some_and(|line| line.contains("cells.jsonl")),
                "{}",
                ran.show()
            );
            ensure!(text.contains("1 cells done"), "{}", ran.show());
            Ok(())
        },
    },
    Row {
        input: "run: three in one second",
        limit: "a directory each",
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

/// A boot of a guest that says hello, behind a shell's words.
fn hello(words: &str, folder: &TempDir) -> anyhow::Result<Program> {
    Ok(tiny::boot(folder, &code::hello("hello\n"))?.behind(words))
}

/// A program in the emulated host that tells how long its arguments are.
fn arguments(count: usize) -> anyhow::Result<Program> {
    let busybox = format!("{}:/in/busybox", files::cached("busybox/busybox")?.display());
    let script = "IFS=; all=\"$*\"; echo ${#all}; exit 5";
    let program = pvticket(["emulate", "--in", &busybox, "--", "/in/busybox", "sh", "-c", script]);
    Ok(program.args(["sh"]).args(vec!["x".repeat(ARGUMENT); count]).limit(120))
}

/// The host's, in KiB.
fn memory_and_swap() -> anyhow::Result<u64> {
    let info = fs::read_to_string("/proc/meminfo")?;
    let kib = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).context("a total")?;
        line.trim().trim_end_matches(" kB").parse::<u64>().context("a number")
    };
    Ok(kib("MemTotal:")? + kib("SwapTotal:")?)
}
