//! `bench`: the workloads of a Linux guest, alone and in a comparison.

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{
    expect_usually, files,
    product::{Boot, Results, pvticket},
    tests,
};

tests![
    every_workload_gets_on,
    a_workload_says_what_it_did_in_words,
    bad_words_are_refused,
    workloads_are_compared,
];

/// Reports operations and steal time; on our kernel also lock statistics.
fn every_workload_gets_on() -> anyhow::Result<()> {
    let all = ["mmap", "open-read-close", "allocate", "messaging", "spawn", "futex", "lock"];
    let script = all.map(|name| format!("bench {name} --seconds 0.3 --json || exit 1; ")).concat();
    let ran = Boot::direct().cpus(2).script(&script).run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.lines().count() == all.len(), "{}", ran.show());
    for (line, name) in text.lines().zip(all) {
        let result: Value = serde_json::from_str(line).with_context(|| ran.show())?;
        ensure!(result["bench"] == name && result["cpus"] == 2, "{name}: {result}");
        let operations = result["operations"].as_array().context("no operations")?;
        let all: u64 = operations.iter().filter_map(Value::as_u64).sum();
        expect_usually!(all > 0, "{name} did nothing: {result}");
        ensure!(result["steal_seconds"].is_number(), "{name}: no stolen time in {result}");
        ensure!(result["stats"]["backend"] == "vmm", "{name}: unexpected backend: {result}");
    }
    Ok(())
}

fn a_workload_says_what_it_did_in_words() -> anyhow::Result<()> {
    let words = ["bench", "open-read-close", "--seconds", "0.4", "--sizes", "0,4096"];
    let ran = Boot::direct().cpus(2).command(words).run()?.exits(0)?;
    let text = ran.text()?;
    for part in
        ["2 workers on 2 CPUs", "0 bytes: operations/s", "4096 bytes: operations/s", "steal"]
    {
        ensure!(text.contains(part), "no '{part}'\n{}", ran.show());
    }
    Ok(())
}

fn bad_words_are_refused() -> anyhow::Result<()> {
    let ran = Boot::direct().command(["bench", "mmmap"]).run()?.exits(2)?;
    ran.complains(&["no workload 'mmmap'", "bench --help"]).map(drop)
}

fn workloads_are_compared() -> anyhow::Result<()> {
    for workload in ["mmap", "open-read-close"] {
        let folder = files::scratch()?;
        let json = folder.path().join("json");
        let words = ["compare", "--host", "direct", "--guest", "linux", "--vcpus", "2"];
        let program = pvticket(words).args(["--workload", workload, "--runs", "1"]);
        let program = program.args(["--seconds", "0.3", "--json"]).args([&json]);
        let ran = program.run()?.exits(0)?;
        ensure!(ran.text()?.contains(&format!("bench {workload}")), "{}", ran.show());
        let rows = Results::read(&json)?.levels()?.concat();
        ensure!(rows.len() == 2, "native and PV: {rows:?}");
        expect_usually!(rows.iter().all(|row| row["rate"]["min"].as_f64() > Some(0.0)), "{rows:?}");
    }
    Ok(())
}
