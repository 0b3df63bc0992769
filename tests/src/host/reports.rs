//! Commands that report: `doctor`, `compare`, and guests that use the hypercalls wrongly.

use std::fs;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{
    expect_usually,
    facts::{Kvm, need_kvm},
    files,
    product::pvticket,
    tests,
};

tests![
    doctor_agrees_with_this_host,
    doctor_speaks_json,
    compare_finds_no_violation,
    compare_refuses_nonsense,
    the_smallest_guest_says_hello,
    misuse_of_hypercalls_is_counted_and_harmless,
];

fn doctor_agrees_with_this_host() -> anyhow::Result<()> {
    let ran = pvticket(["doctor"]).run()?;
    ensure!(matches!(ran.status()?, 0 | 1) && ran.stderr.is_empty(), "{}", ran.show());
    let text = ran.text()?;
    for part in ["KVM", "Where guests run", "linux", "payload", "qemu-system-x86_64"] {
        ensure!(text.contains(part), "no {part:?}\n{}", ran.show());
    }
    Ok(())
}

fn doctor_speaks_json() -> anyhow::Result<()> {
    let ran = pvticket(["doctor", "--json"]).run()?;
    let report: Value = serde_json::from_slice(&ran.stdout).with_context(|| ran.show())?;
    let guests = report["guests"].as_array().context("no guests")?;
    let place = |name: &str| {
        guests.iter().find(|guest| guest["guest"] == name).map(|guest| guest["host"].clone())
    };
    let (linux, payload) = match Kvm::here() {
        Kvm::Hardware => ("direct", "direct"),
        Kvm::Software => ("emulated", "direct"),
        Kvm::Absent | Kvm::Denied => ("emulated", "emulated"),
    };
    ensure!(place("linux") == Some(linux.into()), "linux is not {linux}: {report:#}");
    ensure!(place("payload") == Some(payload.into()), "payload is not {payload}: {report:#}");
    Ok(())
}

fn compare_finds_no_violation() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let file = folder.path().join("json");
    let ran = pvticket(["compare", "--guest", "payload", "--vcpus", "1x,2x", "--runs", "2"])
        .args(["--seconds", "0.1", "--json"])
        .args([&file])
        .run()?
        .exits(0)?;
    for part in ["Min", "Max", "Median", "Avg", "Stddev"] {
        ensure!(ran.text()?.contains(part), "no {part} in the table\n{}", ran.show());
    }
    let report: Value = serde_json::from_slice(&fs::read(&file)?)?;
    let levels = report["levels"].as_array().with_context(|| format!("{report:#}"))?;
    ensure!(levels.len() == 2, "not two levels: {report:#}");
    let runs = levels.iter().flat_map(|level| level["runs"].as_array().into_iter().flatten());
    let runs: Vec<&Value> = runs.collect();
    ensure!(runs.len() == 8, "not two runs of each lock at each level: {report:#}");
    for run in runs {
        ensure!(run["violations"] == 0, "mutual exclusion failed, or nobody looked: {run}");
        let operations = run["operations"].as_array().into_iter().flatten();
        let taken: u64 = operations.filter_map(Value::as_u64).sum();
        expect_usually!(taken > 0, "the lock was never taken: {run}");
    }
    Ok(())
}

fn compare_refuses_nonsense() -> anyhow::Result<()> {
    for words in [["--vcpus", "0"], ["--vcpus", "129"], ["--runs", "0"], ["--seconds", "-1"]] {
        let ran = pvticket(["compare"]).args(words).run()?;
        ran.fails(2, &[words[0]])?;
    }
    // The kernel would take its own threshold instead, in silence.
    let ran = pvticket(["compare", "--guest", "linux", "--spin-threshold", "0"]).run()?;
    ran.fails(2, &["--spin-threshold"]).map(drop)
}

fn the_smallest_guest_says_hello() -> anyhow::Result<()> {
    need_kvm()?;
    let ran = pvticket(["tiny"]).run()?.exits(0)?;
    ensure!(ran.stdout.len() == 1 && ran.stderr.is_empty(), "{}", ran.show());
    Ok(())
}

fn misuse_of_hypercalls_is_counted_and_harmless() -> anyhow::Result<()> {
    need_kvm()?;
    let ran = pvticket(["tiny", "misuse"]).run()?.exits(0)?;
    // Bytes and words, writes and reads, at either port; and one kick into the void.
    ran.one_line(&["kicked vCPUs that do not exist 1 time", "misused hypercall ports 10 times"])?;
    Ok(())
}
