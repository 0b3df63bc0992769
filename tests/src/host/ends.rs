//! Ends of a guest, by each device that notices one, and limits of the process: each has a stated exit
//! status, prints one line of the product on failure, and leaves nothing behind.

use crate::{host::tiny, prelude::*, rows};

kvm::tests![
    every_way_to_end_has_its_status,
    a_guest_that_runs_on_after_a_panic_is_reported => Long("12 s: a kernel has ten to reset"),
    every_limit_ends_every_command_in_one_line,
    a_limit_restores_the_terminal,
];

/// `cli; hlt; jmp` back to the `hlt`.
const HALT: &[u8] = &[0xfa, 0xf4, 0xeb, 0xfd];

/// `mov dx, port; mov al, value; out dx, al`, then spins.
fn out_byte(port: u16, value: u8) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    [&[0x66, 0xba, low, high, 0xb0, value, 0xee][..], code::SPIN].concat()
}

/// The end, the guest's code, the status, and a part of the line; empty for no line.
type Row = (&'static str, Vec<u8>, i32, &'static str);

fn rows() -> Vec<Row> {
    let crash = "triple fault";
    let halted = "all its vCPUs are halted with interrupts off";
    let [restart, off] = ["reboot: Restarting system\r\n", "reboot: System halted\r\n"];
    let no_power = "reboot: Power off not available: System halted instead\r\n";
    vec![
        ("the keyboard controller", out_byte(0x64, 0xfe), 0, ""),
        ("the reset register of ACPI", out_byte(0x682, 1), 0, ""),
        ("the reset control register", out_byte(0xcf9, 6), 0, ""),
        ("system control port A", out_byte(0x92, 1), 0, ""),
        ("the sleep control register", out_byte(0x680, 5 << 2 | 1 << 5), 0, ""),
        ("a triple fault that was ordered", code::prints(restart, code::TRIPLE_FAULT), 0, ""),
        ("a triple fault", code::TRIPLE_FAULT.to_vec(), 1, crash),
        (
            "a triple fault after other text",
            code::prints("Restarting system\r\n", code::TRIPLE_FAULT),
            1,
            crash,
        ),
        ("a halt that was ordered", code::prints(off, HALT), 0, ""),
        ("a power-off without a device", code::prints(no_power, HALT), 0, ""),
        ("a halt", HALT.to_vec(), 1, halted),
        ("a halt of the decompressor", code::prints(" -- System halted", HALT), 1, halted),
        ("none", code::SPIN.to_vec(), 124, "after 2 s (--timeout): vCPU 0 runs at 0x1000000"),
    ]
}

fn every_way_to_end_has_its_status() -> anyhow::Result<()> {
    let rows = rows();
    let results = rows::each(&rows, rows.len(), |(name, code, status, line)| {
        ends(code, *status, line).with_context(|| *name)
    });
    results.into_iter().collect()
}

fn ends(code: &[u8], status: i32, line: &str) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let timeout = if status == 124 { "2" } else { "120" };
    let ran = tiny::boot(&folder, code)?.args(["--timeout", timeout]).run()?;
    if line.is_empty() {
        let ran = ran.exits(status)?;
        ensure!(ran.stderr.is_empty(), "{}", ran.show());
        return Ok(());
    }
    ran.fails(status, &[line]).map(drop)
}

fn a_guest_that_runs_on_after_a_panic_is_reported() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let code = code::prints("Kernel panic - not syncing: why\r\n", code::SPIN);
    let mut running = tiny::boot(&folder, &code)?.args(["--timeout", "60"]).start()?;
    running.wait_for_stderr(
        "pvticket: the guest's kernel panicked and does not restart: vCPU 0 runs at ",
    )?;
    running.signal(rustix::process::Signal::TERM)?;
    running.wait()?.exits(143).map(drop)
}

/// Limits of setrlimit(2) as the shell sets them; some do not matter to some commands. With a stack of 16 KiB
/// and an environment of 5 KiB, the loader crashes before any program's first instruction.
const LIMITS: [&str; 15] = [
    "ulimit -f 0",
    "ulimit -f 1",
    "ulimit -t 2",
    "ulimit -n 6",
    "ulimit -n 20",
    "ulimit -v 60000",
    "ulimit -d 4000",
    "ulimit -d 20000",
    "ulimit -l 0",
    "ulimit -s 64",
    "ulimit -s 512",
    "prlimit --sigpending=0 --pid $$",
    "prlimit --rtprio=0 --pid $$",
    "prlimit --msgqueue=0 --pid $$",
    "prlimit --nofile=12 --pid $$",
];

/// Returns commands with their arguments, in a directory with a run.
fn commands(folder: &TempDir) -> anyhow::Result<Vec<Program>> {
    let short = "--host direct --vcpus 2 --runs 1 --seconds 0.05 --policy host,rr";
    let compare = pvticket(["compare"]).args(short.split(' '));
    let spec = "vcpus = 1\nlocks = \"ticket\"\nrepetitions = 1\nseconds = 0.05\n";
    let spec = files::put(folder, "spec.toml", spec.as_bytes())?;
    let [dir, new] = ["run", "new"].map(|name| folder.path().join(name));
    let run = |dir: &PathBuf| pvticket(["run", "--host", "direct", "--dir"]).args([dir, &spec]);
    run(&dir).run()?.exits(0)?;
    let [html, csv] = ["page.html", "cells.csv"].map(|name| folder.path().join(name));
    let tiny = tiny::boot(folder, &code::hello("hello\n"))?;
    Ok(vec![
        tiny.args(["--stats"]).args([folder.path().join("stats")]),
        compare,
        run(&new),
        pvticket(["report"]).args([&dir]).args(["--html"]).args([html]),
        pvticket(["export", "--csv"]).args([&csv, &dir]),
    ])
}

fn every_limit_ends_every_command_in_one_line() -> anyhow::Result<()> {
    for limit in LIMITS {
        let folder = files::scratch()?;
        let temp = files::scratch()?;
        for program in commands(&folder)? {
            let ran = program.env("TMPDIR", temp.path()).after(limit).run()?;
            ends_in_one_line(&ran, &temp).with_context(|| format!("{limit}\n{}", ran.show()))?;
        }
    }
    Ok(())
}

/// No signal, a line of the product on failure, and nothing left behind except files that a line names.
fn ends_in_one_line(ran: &RunResult, temp: &TempDir) -> anyhow::Result<()> {
    let (status, errors) = (ran.status()?, ran.errors());
    ensure!(status <= 125, "status {status}");
    // A run continues after a failed cell, which its line names.
    let is_one = |line: &str| line.starts_with("pvticket: ") || line.contains(": cannot ");
    ensure!(status == 0 || errors.lines().any(is_one), "no line");
    for entry in fs::read_dir(temp.path())? {
        let path = entry?.path();
        ensure!(errors.contains(&*path.to_string_lossy()), "{} is left", path.display());
        fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// A boot with a shell sets its terminal to raw mode.
fn a_limit_restores_the_terminal() -> anyhow::Result<()> {
    for limit in ["ulimit -f 0", "ulimit -t 2"] {
        let folder = files::scratch()?;
        let terminal = Terminal::open()?;
        let code = if limit.contains("-t") { code::SPIN.to_vec() } else { code::hello("up\n") };
        let stats = folder.path().join("stats");
        let boot = tiny::boot(&folder, &code)?.args(["--stats"]).args([stats]).after(limit);
        let ran = terminal.start(boot)?.wait()?;
        terminal.is_restored().with_context(|| limit)?;
        ensure!(ran.status()? == 1, "{limit}: {}", ran.show());
    }
    Ok(())
}
