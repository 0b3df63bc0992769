//! Costs of the hypercalls on this host, by `bench hypercalls`, and gains of cheaper handoffs.

use std::collections::BTreeSet;

use crate::{prelude::*, product::check_progress};

tests![
    a_handoff_costs_a_wakeup_and_its_exits,
    every_cheaper_handoff_excludes,
    a_short_queue_needs_few_handoffs => Quiet("halts per acquisition with and without, factor 10"),
    the_bench_in_the_emulated_host_has_all_options,
];

/// Runs `bench hypercalls` with these options; returns its JSON.
pub fn bench(host: &str, limit: u64, options: &[&str]) -> anyhow::Result<Value> {
    let folder = files::scratch()?;
    let file = folder.path().join("json");
    let ran = pvticket(["bench", "hypercalls", "--host", host, "--json"])
        .args([&file])
        .args(options)
        .limit(limit)
        .run()?
        .exits(0)?;
    files::json(&file).with_context(|| ran.show())
}

/// Returns the case of a backend (None: raw) with this name.
pub fn case<'a>(report: &'a Value, backend: Option<&str>, what: &str) -> anyhow::Result<&'a Value> {
    let cases = report["cases"].as_array().into_iter().flatten();
    let mut matching =
        cases.filter(|case| case["backend"].as_str() == backend && case["what"] == what);
    matching.next().with_context(|| format!("no case {what} of {backend:?}: {report}"))
}

fn p50(case: &Value) -> anyhow::Result<f64> {
    case["p50"].as_f64().filter(|nanos| *nanos > 0.0).with_context(|| format!("no time: {case}"))
}

/// Defect 17 of `tests/HISTORY.md`: a thread once slept for 100 us instead of yielding. On one CPU a handoff
/// is a wakeup and two exits, and any sleep would be a multiple of that.
fn a_handoff_costs_a_wakeup_and_its_exits() -> anyhow::Result<()> {
    need_kvm()?;
    let seconds = by_form("0.05", "0.1");
    let report =
        bench("direct", 180, &["--runs", "1", "--seconds", seconds, "--pv-backends", "vmm"])?;
    let futex = p50(case(&report, None, "futex handoff, same CPU")?)?;
    let exit = p50(case(&report, Some("vmm"), "exit and entry")?)?;
    let handoff = case(&report, Some("vmm"), "kick -> run, same CPU")?;
    let least = futex + 2.0 * exit;
    expect_usually!(p50(handoff)? < 3.0 * least, "a handoff is more than {least} ns: {handoff}");
    expect_usually!(handoff["samples"].as_u64() > Some(50), "{handoff}");
    // A kick and a halt each way.
    let exits = handoff["user_exits"].as_f64().unwrap_or_default();
    ensure!((3.0..5.0).contains(&exits), "{handoff}");
    Ok(())
}

/// Returns the runs of a payload comparison under `rr` at 2x with these handoffs.
fn compared(handoffs: &str, vcpus: &str) -> anyhow::Result<Vec<Value>> {
    need_kvm()?;
    let options = "--guest payload --runs 1 --seconds 0.3 --policy rr";
    Compared::with_options(&format!("{options} --vcpus {vcpus} --set handoffs={handoffs}"))?.runs()
}

fn every_cheaper_handoff_excludes() -> anyhow::Result<()> {
    let handoffs = "far:2,adapt,claim,fuse,queue:1,queue:2,far:2+adapt+claim+fuse+queue:2";
    let runs = compared(handoffs, "2x,4x")?;
    ensure!(runs.len() == 2 * 8, "{} runs", runs.len());
    check_progress(&runs)
}

/// Checks counts, not times: with all vCPUs in the queue nearly every acquisition costs a halt and a
/// kick.
fn a_short_queue_needs_few_handoffs() -> anyhow::Result<()> {
    let runs = compared("none,queue:2", "2x")?;
    let halts_each = |handoff: &str| {
        let run = runs.iter().find(|run| run["backend"] == "vmm" && run["handoff"] == handoff);
        let run = run.with_context(|| format!("no run with {handoff}"))?;
        let halts = run["halts"].as_f64().context("no halts")?;
        anyhow::Ok(halts / operations(run).max(1) as f64)
    };
    let (plain, queue) = (halts_each("none")?, halts_each("queue:2")?);
    expect_usually!(plain > 0.1, "{plain} halts per acquisition: not overcommitted");
    expect_usually!(queue < plain / 10.0, "{queue} halts per acquisition, {plain} without");
    Ok(())
}

fn the_bench_in_the_emulated_host_has_all_options() -> anyhow::Result<()> {
    let words = "--runs 1 --seconds 0.04 --seed 7 --cpus 0 --pv-backends kvm,doorbell";
    let report = bench("emulated", 300, &Vec::from_iter(words.split(' ')))?;
    ensure!(report["seed"] == 7 && report["cpus"] == json!([0]), "{report:#}");
    // Four rounds per run, each a quarter of its time.
    ensure!(report["rounds"] == 4 && report["seconds"] == 0.01, "{report:#}");
    let cases = report["cases"].as_array().into_iter().flatten();
    let backends: BTreeSet<_> = cases.filter_map(|case| case["backend"].as_str()).collect();
    ensure!(backends == BTreeSet::from(["doorbell", "kvm"]), "{backends:?}");
    Ok(())
}
