//! Oversized or blocking files and lines.

use std::{fs::File, io::Write};

use super::row::{
    End::{Line, OneLine, Silent},
    Row, refused, row,
};
use crate::prelude::*;

/// Limit of CPU time in seconds for rows that only read input.
const CPU_LIMIT: u64 = 30;

/// Only in `make test-all`: 8 s without optimization.
pub const LONG: &[Row] =
    &[row("spec: 300 labels by 300 seeds", Silent(0), 512, |folder| dry_run(folder, &square(300)))];

pub const ROWS: &[Row] = &[
    // A megabyte of seeds once took half a minute. The limit protects steps that compare all pairs.
    Row {
        input: "spec: 100 000 seeds",
        end: Silent(0),
        memory: 512,
        feed: |folder| dry_run(folder, &format!("{ONE}seeds = [{}]\n", numbers(100_000, 100_000))),
        check: |_, ran| {
            let text = ran.text()?;
            ensure!(text.contains("100000 cells of 100000 points"), "{}", ran.show());
            Ok(())
        },
    },
    row("spec: 140 000 seeds", OneLine(2, &["140000 cells: at most 100000"]), 128, |folder| {
        dry_run(folder, &format!("{ONE}seeds = [{}]\n", numbers(100_000, 140_000)))
    }),
    row(
        "spec: 1000 labels by 1000 seeds",
        OneLine(2, &["1000000 cells: at most 100000"]),
        128,
        |folder| dry_run(folder, &square(1000)),
    ),
    row("spec: 30 000 excludes", OneLine(2, &["30000 times [[exclude]]", "128"]), 128, |folder| {
        let excludes = "[[exclude]]\nvcpus = 2\n".repeat(30_000);
        dry_run(folder, &format!("vcpus = [2, 3]\n{excludes}"))
    }),
    refused("spec: /dev/zero", &["/dev/zero: it has more than 1 MiB"], |_| {
        quick(&["run", "/dev/zero"])
    }),
    refused("spec: a FIFO without a writer", &["a FIFO without a writer"], |folder| {
        Ok(quick(&["run"])?.args([fifo(folder.path(), "fifo")?]))
    }),
    row("spec: a pipe", Silent(0), 64, |_| {
        let spec = Input::Bytes(b"vcpus = 2\n".to_vec());
        Ok(quick(&["run", "/dev/stdin", "--dry-run"])?.input(spec))
    }),
    row("--system-map: /dev/zero", OneLine(2, &["it has more than 64 MiB"]), 256, |_| {
        quick(&["boot", "--system-map", "/dev/zero"])
    }),
    row(
        "--append: 3000 bytes",
        OneLine(1, &["command line", "exceed this kernel's limit of 2047"]),
        512,
        |folder| {
            let kernel = files::put(folder, "vmlinux", &files::vmlinux(files::code::SPIN))?;
            let boot = quick(&["boot", "--host", "direct", "--cpus", "1", "--kernel"])?;
            let boot = boot.args([kernel]).env("PVTICKET_TRUST_KVM", "1");
            Ok(boot.args(["--append", &"x".repeat(3000), "--", "true"]))
        },
    ),
    refused(
        "recording: 2^40 slices by its head",
        &["1099511627776 slices; the maximum is 4194304"],
        |folder| replay(&recording(folder, 0, 1 << 40, &[])?),
    ),
    refused(
        "recording: a gap of 2^63 ns",
        &["slice 1 ends more than a day after the first slice began"],
        |folder| replay(&recording(folder, 0, 2, &[(0, 0), (1 << 63, 1)])?),
    ),
    Row {
        input: "recording: for 7 slices there was no room",
        end: Line(0, &["--policy replay:", "7 slices are not in it", "record for a shorter time"]),
        memory: 256,
        feed: |folder| replay(&recording(folder, 7, 2, &[(0, 0), (1_000_000, 1)])?),
        check: |_, ran| {
            ran.stdout_has(&["replay:"])?;
            Ok(())
        },
    },
    row("store: a FIFO, report", OneLine(1, &["not a regular file"]), 64, |folder| {
        Ok(quick(&["report"])?.args([fifo_store(folder)?]))
    }),
    row("store: a FIFO, run --resume", OneLine(1, &["not a regular file"]), 64, |folder| {
        Ok(quick(&["run", "--resume"])?.args([fifo_store(folder)?]))
    }),
    row(
        "store: a line of 32 MiB, report",
        OneLine(1, &["damaged in line 1: it is longer than 16 MiB"]),
        64,
        |folder| Ok(quick(&["report"])?.args([long_store(folder)?])),
    ),
    row(
        "store: a line of 32 MiB, run --resume",
        OneLine(1, &["damaged in line 1: it is longer than 16 MiB"]),
        64,
        |folder| Ok(quick(&["run", "--resume"])?.args([long_store(folder)?])),
    ),
    row(
        "trace: a packet of 2^42 bytes",
        OneLine(1, &["not a pvticket trace (make one with --trace)"]),
        64,
        |folder| {
            let packet = [&[0x0a][..], &[0x80; 6], &[0x01], &[0; 4096]].concat();
            Ok(quick(&["trace"])?.args([files::put(folder, "trace", &packet)?]))
        },
    ),
    row(
        "job of a worker: a line of 4 MiB",
        OneLine(1, &["a job is longer than 1 MiB"]),
        64,
        |_| Ok(quick(&["cells"])?.input(Input::Bytes(vec![b' '; 4 << 20]))),
    ),
];

/// The store's file in a run's directory.
const STORE: &str = "cells.jsonl";

/// A spec of one cell; rows add lines.
const ONE: &str = "vcpus = 2\nlocks = \"ticket\"\nrepetitions = 1\n";

fn quick(words: &[&str]) -> anyhow::Result<Program> {
    // The program's own limit ends rows that would wait forever.
    Ok(pvticket(words).after(&format!("ulimit -t {CPU_LIMIT}")))
}

fn numbers(from: u32, count: u32) -> String {
    (from..from + count).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
}

fn square(side: u32) -> String {
    let labels: Vec<_> = (0..side).map(|n| format!("\"l{n}\"")).collect();
    format!("{ONE}labels = [{}]\nseeds = [{}]\n", labels.join(","), numbers(1, side))
}

fn dry_run(folder: &TempDir, spec: &str) -> anyhow::Result<Program> {
    Ok(quick(&["run", "--dry-run"])?.args([files::put(folder, "spec.toml", spec.as_bytes())?]))
}

fn fifo(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    Program::new("mkfifo").args([&path]).run()?.exits(0)?;
    Ok(path)
}

fn run_dir(folder: &TempDir) -> anyhow::Result<PathBuf> {
    let dir = folder.path().join("run");
    fs::create_dir(&dir)?;
    Ok(dir)
}

/// A run whose store is a FIFO.
fn fifo_store(folder: &TempDir) -> anyhow::Result<PathBuf> {
    let dir = run_dir(folder)?;
    fifo(&dir, STORE)?;
    Ok(dir)
}

/// A run whose store begins with a line of 32 MiB.
fn long_store(folder: &TempDir) -> anyhow::Result<PathBuf> {
    let dir = run_dir(folder)?;
    File::create(dir.join(STORE))?.write_all(&vec![b' '; 32 << 20])?;
    Ok(dir)
}

/// Writes a recording of two vCPUs on one slot: slices of 1 us, with their starts in ns and their vCPUs.
fn recording(
    folder: &TempDir,
    lost: u64,
    count: u64,
    slices: &[(u64, u32)],
) -> anyhow::Result<PathBuf> {
    const VERSION: u32 = 3;
    const SLICE_NO_POINT: [u8; 4] = [0, 0, 1, 255];
    let mut bytes = b"PVTSCHED".to_vec();
    bytes.extend([VERSION, 2, 1, 0].map(u32::to_le_bytes).concat());
    bytes.extend([lost, count].map(u64::to_le_bytes).concat());
    for (at, vcpu) in slices {
        bytes.extend([*at, 1000].map(u64::to_le_bytes).concat());
        bytes.extend(vcpu.to_le_bytes());
        bytes.extend(SLICE_NO_POINT);
    }
    files::put(folder, "recording", &bytes)
}

fn replay(file: &Path) -> anyhow::Result<Program> {
    let policy = format!("replay:{}", file.display());
    let words = ["--host", "direct", "--vcpus", "2", "--slots", "1", "--runs", "1"];
    let compare = quick(&["compare", "--seconds", "0.1", "--policy", &policy])?;
    Ok(compare.args(words))
}
