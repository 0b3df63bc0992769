//! vCPU threads that do not leave when their cell is over.

use std::{fs, path::PathBuf, thread, time::Duration};

use anyhow::{Context, ensure};
use rustix::process::Pid;
use serde_json::Value;

use crate::{
    expect_usually,
    facts::need_kvm,
    files,
    process::{Program, Running, children, threads},
    product::pvticket,
    tests,
};

tests![
    a_thread_that_comes_late_ends_no_worker => Quiet("12 s in which the host is kept from running a thread"),
];

const SPEC: &str =
    "vcpus = 1\nlocks = \"ticket\"\npolicies = \"rr\"\nrepetitions = 3\nseconds = 2.5\n";

/// Busy processes on each CPU beside the thread.
const BUSY: usize = 12;

/// The thread of this name of a child of `parent`.
fn thread_of_child(parent: Pid, name: &str) -> Option<i32> {
    let named = |thread: &PathBuf| {
        fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    children(parent).into_iter().find_map(|child| {
        let found = threads(child.as_raw_nonzero()).find(named)?;
        found.file_name()?.to_str()?.parse().ok()
    })
}

/// Processes that compute on each CPU for so many seconds.
fn busy(seconds: f64) -> anyhow::Result<Vec<Running>> {
    let cpus = thread::available_parallelism()?.get();
    let script = "while :; do :; done";
    let start = |number: usize| {
        let cpu = (number % cpus).to_string();
        let timed = seconds.to_string();
        Program::new("taskset").args(["-c", &cpu, "timeout", &timed, "sh", "-c", script]).start()
    };
    (0..BUSY * cpus).map(start).collect()
}

/// The first cell's thread gets no CPU time when it is told to leave, and comes out in a later cell: it was the last to use
/// its schedule, dropped its timers, and the filter of its class ended the worker.
fn a_thread_that_comes_late_ends_no_worker() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let spec = files::put(&folder, "spec.toml", SPEC.as_bytes())?;
    let dir = folder.path().join("run");
    let run = pvticket(["run", "--host", "direct", "--dir"]).args([&dir, &spec]);
    let mut run = run.start()?;
    let parent = run.pid();
    run.wait_until("vCPU", || thread_of_child(parent, "vcpu0").is_some())?;
    let vcpu = thread_of_child(parent, "vcpu0").context("no vCPU")?.to_string();
    thread::sleep(Duration::from_millis(700));
    let busy = busy(5.5)?;
    Program::new("chrt").args(["--idle", "-p", "0", &vcpu]).run()?.exits(0)?;
    let ran = run.wait()?;
    drop(busy);
    let lines = fs::read_to_string(dir.join("cells.jsonl"))?;
    let lines: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let cells: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "cell").collect();
    ensure!(cells.len() == 3, "{} of 3 cells have ended\n{}", cells.len(), ran.show());
    let errors = ran.errors();
    ensure!(!errors.contains("159") && !errors.contains("timer_delete"), "{}", ran.show());
    ensure!(cells[2]["status"] == "done", "{}\n{}", cells[2], ran.show());
    expect_usually!(
        cells[0]["error"].as_str().is_some_and(|error| error.contains("did not stop")),
        "the thread came in time: {}",
        cells[0]
    );
    Ok(())
}
