//! `sched-features`: features of a scheduler, in the emulated host, and what refuses them.

use std::{fs, path::Path};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{emulated::script_with_spec, first_cpu::BUSYBOX};
use crate::{
    facts::need_kvm,
    files,
    product::{IN_EMULATED_HOST, pvticket},
    tests,
};

tests![
    features_are_switched_for_their_cells,
    they_are_as_before_when_a_run_has_ended,
    no_process_with_a_guest_has_their_file,
    what_a_host_does_not_allow_is_refused,
];

/// A spec of two cells on a host.
fn spec(host: &str, features: &str) -> String {
    spec_of_seconds(0.05, host, features)
}

fn spec_of_seconds(seconds: f64, host: &str, features: &str) -> String {
    format!(
        "host = \"{host}\"\nlocks = \"ticket\"\nvcpus = 2\nslots = 1\nrepetitions = 1\n\
         seconds = {seconds}\nsched-features = [\"none\", \"{features}\"]\n"
    )
}

/// A worker reads the features back before it measures, so a cell with figures ran with them.
fn features_are_switched_for_their_cells() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let asked = "NEXT_BUDDY+NO_WAKEUP_PREEMPTION";
    let file = files::put(&folder, "spec.toml", spec("emulated", asked).as_bytes())?;
    let dir = folder.path().join("run");
    let ran = pvticket(["run"]).args([&file]).args([Path::new("--dir"), &dir]).run()?.exits(0)?;
    let lines = fs::read_to_string(dir.join("cells.jsonl"))?;
    let lines: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let cells: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "cell").collect();
    ensure!(cells.len() == 2, "{}", ran.show());
    let switched = cells.iter().filter(|cell| cell["point"]["sched_features"] == asked).count();
    ensure!(switched == 1, "{cells:?}");
    for cell in cells {
        ensure!(cell["status"] == "done" && cell["figures"]["violations"] == 0, "{cell}");
    }
    let table = pvticket(["export", "--csv", "/dev/stdout"]).args([&dir]).run()?.exits(0)?;
    let mut rows = table.text()?.lines();
    let column = rows.next().and_then(|head| head.split(',').position(|it| it == "sched_features"));
    let column = column.context("no column")?;
    let values: Vec<&str> = rows.filter_map(|row| row.split(',').nth(column)).collect();
    ensure!(values.contains(&"") && values.contains(&asked), "{values:?}");
    Ok(())
}

/// A run on the emulated host's own KVM, whose features are read before and after it.
fn they_are_as_before_when_a_run_has_ended() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = files::put(&folder, "spec.toml", spec("direct", "NO_WAKEUP_PREEMPTION").as_bytes())?;
    let script = format!(
        "r() {{ {BUSYBOX} cat /sys/kernel/debug/sched/features; }}; a=$(r); \
         {IN_EMULATED_HOST} run /spec.toml --dir /tmp/d > /tmp/out 2>&1 || {BUSYBOX} cat /tmp/out; \
         {BUSYBOX} grep -c sched_features /tmp/d/cells.jsonl; [ \"$a\" = \"$(r)\" ] && echo same"
    );
    script_with_spec(file, &script).run()?.exits(0)?.says("1\nsame\n").map(drop)
}

/// Whoever has the file open can switch the scheduler of everything, without capabilities.
fn no_process_with_a_guest_has_their_file() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let long = spec_of_seconds(600.0, "direct", "NO_WAKEUP_PREEMPTION");
    let file = files::put(&folder, "spec.toml", long.as_bytes())?;
    let script = format!(
        "{IN_EMULATED_HOST} run /spec.toml --dir /tmp/d > /tmp/out 2>&1 & \
         until {BUSYBOX} grep -qs vcpu1 /proc/[0-9]*/task/*/comm; do \
         kill -0 $! || {{ {BUSYBOX} cat /tmp/out; exit 1; }}; {BUSYBOX} sleep 0.1; done; \
         for task in $({BUSYBOX} grep -ls vcpu1 /proc/[0-9]*/task/*/comm); do \
         {BUSYBOX} ls -l ${{task%/task/*}}/fd | {BUSYBOX} grep sched/features; echo looked; done; \
         kill $!; wait $!; exit 0"
    );
    script_with_spec(file, &script).run()?.exits(0)?.says("looked\n").map(drop)
}

/// One line, before anything runs, with the name.
fn what_a_host_does_not_allow_is_refused() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let refused = |host: &str, features: &str, words: &[&str], parts: &[&str]| {
        let file = files::put(&folder, "spec.toml", spec(host, features).as_bytes())?;
        let dir = folder.path().join("run");
        let run = pvticket(["run"]).args([&file]).args([Path::new("--dir"), &dir]).args(words);
        run.run()?.fails(2, parts)?;
        ensure!(!dir.exists(), "{features}: it left a run");
        anyhow::Ok(())
    };
    refused("direct", "next_buddy", &[], &["line 7", "unknown scheduler feature 'next_buddy'"])?;
    refused("direct", "A+NO_A", &[], &["'A' is switched twice"])?;
    refused("direct", "NEXT_BUDDY", &["--jobs", "2"], &["NEXT_BUDDY", "--jobs"])?;
    refused("direct", "NEXT_BUDDY", &["--on", "local"], &["NEXT_BUDDY with --on"])?;
    if !Path::new("/sys/kernel/debug/sched/features").exists() {
        let parts = ["NEXT_BUDDY: cannot open /sys/kernel/debug/sched/features", "--host emulated"];
        refused("direct", "NEXT_BUDDY", &[], &parts)?;
    }
    // RUN_TO_PARITY is a feature of EEVDF.
    let parts = ["kernel 6.1 of the emulated host has no feature RUN_TO_PARITY", "NEXT_BUDDY"];
    refused("emulated", "RUN_TO_PARITY", &["--host-kernel", "6.1"], &parts)
}
