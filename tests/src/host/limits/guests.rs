//! Unbounded growth and false claims by guests.

use std::fs::File;

use rustix::pipe::pipe;

use super::row::{
    End::{Line, OneLine, Silent},
    Feed, Row, row,
};
use crate::{
    files::code::{
        MAP, out,
        port::{EXIT, KICK, OUTPUT_PAGE, STDERR_PAGE, STDOUT_PAGE},
        times,
    },
    host::{run, tiny},
    prelude::*,
};

/// Number of kicks, all to be delayed.
const KICKS: u32 = 100_000;

/// Page frame of the kernel's first byte.
const FIRST: u32 = 0x1000;

pub const ROWS: &[Row] = &[
    Row {
        input: "guest: COM1 without an end",
        end: OneLine(1, &["output", "exceeds --output-limit 20 KiB"]),
        memory: 256,
        feed: |folder| Ok(tiny::boot(folder, code::FLOOD)?.args(["--output-limit", "20K"])),
        check: |_, ran| {
            ensure!(ran.stdout == [b'x'; 20 << 10], "{} bytes\n{}", ran.stdout.len(), ran.show());
            Ok(())
        },
    },
    row("guest: COM1 without a reader", Silent(141), 256, |folder| {
        Ok(tiny::boot(folder, code::FLOOD)?.stdout(pipe()?.1))
    }),
    Row {
        input: "guest: input without an end, which it does not read",
        end: Silent(0),
        memory: 256,
        feed: |folder| {
            let code = [code::exits(200_000), code::hello("hello\n")].concat();
            let zero = File::open("/dev/zero")?;
            Ok(tiny::boot(folder, &code)?.input(Input::From(zero.into())))
        },
        check: |_, ran| {
            ensure!(ran.stdout == b"hello\n", "{}", ran.show());
            Ok(())
        },
    },
    Row {
        input: "guest: 100 000 kicks that come an hour late",
        end: Line(0, &["kicks delivered at once, as too many were pending", "kick-delay"]),
        memory: 256,
        feed: |folder| {
            let code = [times(KICKS, &out(KICK, 0)), code::hello("")].concat();
            let stats = folder.path().join("stats");
            let boot = tiny::boot(folder, &code)?.args(["--fault", "kick-delay:3600s", "--stats"]);
            Ok(boot.args([stats]))
        },
        check: |folder, _| {
            let faults = &files::json(&folder.path().join("stats"))?["faults"];
            let (delayed, not_delayed) = (count(faults, "delayed")?, count(faults, "not_delayed")?);
            ensure!(delayed + not_delayed == u64::from(KICKS), "some are in no count: {faults}");
            // Kicks that the delivery thread has collected, plus its queue.
            ensure!((64 << 10..=(64 << 10) + 512).contains(&delayed), "{faults}");
            Ok(())
        },
    },
    long_output(
        "guest: a result of 2 MiB",
        &["the result of the guest is longer than 1 MiB"],
        |folder| compare(folder, &[page(FIRST), flood(STDOUT_PAGE), out(EXIT, 0)].concat()),
    ),
    long_output(
        "guest: a last line of 2 MiB",
        &["the guest's last line: ", " ... (of "],
        |folder| compare(folder, &[page(FIRST), flood(STDERR_PAGE), out(EXIT, 1)].concat()),
    ),
    long_output(
        "guest: a result that is none, of 4 KiB",
        &["cannot read the guest's result", " ... (of "],
        |folder| compare(folder, &[page(FIRST), out(STDOUT_PAGE, 4096), out(EXIT, 0)].concat()),
    ),
    long_output(
        "guest: 2^64-1 operations",
        &["the guest reports impossible figures: a count of 18446744073709551615"],
        |folder| claims(folder, "{\"seconds\":1,\"operations\":[18446744073709551615]}"),
    ),
    long_output(
        "guest: 9 operations in 1e-300 s",
        &["the guest reports impossible figures: ", "operations a second"],
        |folder| claims(folder, "{\"seconds\":1e-300,\"operations\":[9]}"),
    ),
    Row {
        input: "run --trace: a trace of some 100 KB",
        end: Line(
            0,
            &["cell 0 is not in the trace", "longer than 16 KiB; measure for a shorter time"],
        ),
        memory: 256,
        feed: |folder| {
            // Each acquisition takes a halt, a kick and two time slices.
            let spec = "vcpus = 4\nlocks = \"pv-ticket\"\npolicies = \"rr\"\nspin-threshold = 1\n\
                        critical = 1\nthink = 1\nrepetitions = 1\nseconds = 0.5\n";
            let spec = files::put(folder, "spec.toml", spec.as_bytes())?;
            let [dir, trace] = ["run", "trace"].map(|name| folder.path().join(name));
            let run = pvticket(["run", "--host", "direct", "--dir"]).args([dir, spec]);
            Ok(run.args(["--trace"]).args([trace]).env("PVTICKET_TRACE_LIMIT", "16K"))
        },
        check: |folder, _| {
            let cells = run::cells(&folder.path().join("run"))?;
            ensure!(cells.iter().any(|cell| cell["status"] == "done"), "lost: {cells:?}");
            Ok(())
        },
    },
    Row {
        input: "guest in the emulated host: FXSAVE to a device",
        end: Line(1, &["cannot emulate the instruction 0f ae 00", "plain loads and stores only"]),
        memory: 2048,
        feed: |folder| {
            // mov eax, 0x20000000; fxsave [rax]
            let save = [0xb8, 0, 0, 0, 0x20, 0x0f, 0xae, 0x00, 0xeb, 0xfe];
            emulated(folder, &[MAP, &save].concat())
        },
        check: |_, ran| {
            let errors = ran.errors();
            ensure!(!errors.contains("--host emulated"), "it runs there already\n{}", ran.show());
            Ok(())
        },
    },
    Row {
        input: "guest in the emulated host: a triple fault",
        end: Line(1, &["triple fault"]),
        memory: 2048,
        feed: |folder| emulated(folder, code::TRIPLE_FAULT),
        check: |_, ran| {
            // KVM has reset the vCPU to this address.
            ensure!(!ran.errors().contains("0xfff0"), "the address misleads\n{}", ran.show());
            Ok(())
        },
    },
];

/// A guest whose output makes the VMM exit with status 1, with these words and no long line.
const fn long_output(input: &'static str, parts: &'static [&'static str], feed: Feed) -> Row {
    Row { check: lines_are_short, ..row(input, Line(1, parts), 256, feed) }
}

fn page(frame: u32) -> Vec<u8> {
    out(OUTPUT_PAGE, frame)
}

/// Sends the kernel's first page 512 times, 2 MiB in all.
fn flood(port: u16) -> Vec<u8> {
    times(512, &out(port, 4096))
}

/// Compares Linux guests with this code as the kernel.
fn compare(folder: &TempDir, code: &[u8]) -> anyhow::Result<Program> {
    let code = [code, code::SPIN].concat();
    let kernel = files::put(folder, "vmlinux", &files::vmlinux(&code))?;
    let words = ["compare", "--guest", "linux", "--host", "direct", "--vcpus", "1", "--runs", "1"];
    let compare = pvticket(words).args(["--seconds", "0.1", "--workload", "lock"]);
    let compare = compare.args(["--locks", "ticket,pv-ticket", "--guest-kernel"]).args([kernel]);
    Ok(compare.env("PVTICKET_TRUST_KVM", "1"))
}

/// Compares guests that print this result.
fn claims(folder: &TempDir, result: &str) -> anyhow::Result<Program> {
    let length = result.len() as u32;
    let mut code = [page(FIRST + 1), out(STDOUT_PAGE, length), out(EXIT, 0)].concat();
    code.extend(code::SPIN);
    code.resize(4096, 0);
    code.extend(result.bytes());
    compare(folder, &code)
}

fn emulated(folder: &TempDir, code: &[u8]) -> anyhow::Result<Program> {
    Ok(Boot::on("emulated").kernel_code(folder, code)?.with("--cpus 1 --mem 64M").program())
}

fn lines_are_short(_: &TempDir, ran: &RunResult) -> anyhow::Result<()> {
    let longest = ran.errors().lines().map(str::len).max().unwrap_or(0);
    ensure!(longest < 4096, "a line of {longest} bytes\n{}", ran.show());
    Ok(())
}
