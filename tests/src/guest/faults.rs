//! Injected faults in the kicks and halts of Linux guests.

use std::fs;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::locks;
use crate::{expect_usually, files, product::Boot, tests};

tests![
    torture_with_faults,
    torture_with_faults_under_random,
    faults_are_in_the_stats,
    kicks_of_cpus_that_stay_down_make_no_thread_spin,
];

/// All faults except lost kicks.
const HARMLESS: &str = "kick-delay:200us,kick-dup:0.1,spurious:0.1,halt-delay:200us";

fn torture_with_faults() -> anyhow::Result<()> {
    locks::torture_of(Boot::direct().fault(HARMLESS))
}

fn torture_with_faults_under_random() -> anyhow::Result<()> {
    locks::torture_of(Boot::direct().fault(HARMLESS).policy("random").slots(2))
}

fn faults_are_in_the_stats() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("stats");
    let boot = Boot::direct().cpus(4).policy("rr").slots(2).fault("spurious:0.3").stats(&file);
    let ran = boot.command(["lockbench", "--seconds", "2"]).run()?.exits(0)?;
    ensure!(ran.errors().contains("pvticket: faults: 0 kicks dropped"), "{}", ran.show());
    let stats: Value = serde_json::from_slice(&fs::read(&file).context("no --stats file")?)?;
    expect_usually!(stats["faults"]["spurious"].as_u64() > Some(0), "no faults: {stats:#}");
    Ok(())
}

/// Two of four CPUs run and kick. Each kick also wakes another vCPU, sometimes one of the two that
/// are never started. Those must rest: once they entered KVM again and again, 10^5 times a second.
fn kicks_of_cpus_that_stay_down_make_no_thread_spin() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("stats");
    let boot = Boot::direct().cpus(4).append("maxcpus=2 pvticket_spin=1").fault("spurious:1");
    let boot = boot.stats(&file).command(["lockbench", "--seconds", "2"]);
    boot.run()?.exits(0)?;
    let stats: Value = serde_json::from_slice(&fs::read(&file).context("no --stats file")?)?;
    let exits = |vcpu: usize| stats["vmm"]["vcpus"][vcpu]["exits"].as_u64().context("no exits");
    let seconds = stats["ran_ns"].as_u64().context("no time")? / 1_000_000_000 + 1;
    expect_usually!(exits(2)? + exits(3)? > 2, "no kick has met one that is down: {stats:#}");
    for vcpu in [2, 3] {
        let most = 100 * seconds + 100;
        ensure!(exits(vcpu)? <= most, "vCPU {vcpu}: {} exits, not {most}", exits(vcpu)?);
    }
    Ok(())
}
