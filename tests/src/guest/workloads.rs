//! `bench`: the workloads of a Linux guest, alone and in a comparison.

use crate::prelude::*;

tests![
    every_workload_makes_progress,
    a_workload_prints_a_summary,
    invalid_arguments_are_rejected: Boot::direct().command(["bench", "mmmap"]).run()?
        .exits(2)?.stderr_has(&["no workload 'mmmap'", "bench --help"]).map(drop),
    workloads_are_compared: ["mmap", "open-read-close"].into_iter().try_for_each(|name| is_compared(name, "0.3")),
];

/// Each workload reports operations and steal time, and on our kernel lock statistics.
fn every_workload_makes_progress() -> anyhow::Result<()> {
    let names = ["mmap", "open-read-close", "allocate", "messaging", "spawn", "futex", "lock"];
    let script =
        names.map(|name| format!("bench {name} --seconds 0.3 --json || exit 1; ")).concat();
    let ran = Boot::direct().with("--cpus 2").script(&script).run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.lines().count() == names.len(), "{}", ran.show());
    for (line, name) in text.lines().zip(names) {
        let result: Value = serde_json::from_str(line).with_context(|| ran.show())?;
        ensure!(result["bench"] == name && result["cpus"] == 2, "{name}: {result}");
        expect_usually!(operations(&result) > 0, "{name} did nothing: {result}");
        ensure!(result["steal_seconds"].is_number(), "{name}: no stolen time in {result}");
        ensure!(result["stats"]["backend"] == "vmm", "{name}: unexpected backend: {result}");
    }
    Ok(())
}

fn a_workload_prints_a_summary() -> anyhow::Result<()> {
    let words = ["bench", "open-read-close", "--seconds", "0.4", "--sizes", "0,4096"];
    let ran = Boot::direct().with("--cpus 2").command(words).run()?.exits(0)?;
    let parts =
        ["2 workers on 2 CPUs", "0 bytes: operations/s", "4096 bytes: operations/s", "steal"];
    ran.stdout_has(&parts)
}

/// Compares native and PV ticketlocks under a workload.
pub fn is_compared(workload: &str, seconds: &str) -> anyhow::Result<()> {
    let words = "--host direct --guest linux --vcpus 2 --runs 1";
    let Compared { ran, results } =
        Compared::with_options(&format!("{words} --seconds {seconds} --workload {workload}"))?;
    ran.stdout_has(&[&format!("bench {workload}")])?;
    let rows = results.levels()?.concat();
    ensure!(rows.len() == 2, "native and PV: {rows:?}");
    expect_usually!(rows.iter().all(|row| row["rate"]["min"].as_f64() > Some(0.0)), "{rows:?}");
    Ok(())
}
