//! Faults injected into the kicks and halts of Linux guests.

use super::locks;
use crate::prelude::*;

tests![
    torture_with_faults: locks::torture_of(Boot::direct().option("--fault", HARMLESS)),
    torture_with_faults_under_random: locks::torture_of(Boot::direct().option("--fault", HARMLESS).with("--policy random --slots 2")),
    faults_are_in_the_stats,
    kicks_of_cpus_that_stay_down_make_no_thread_spin,
];

/// All faults except lost kicks.
const HARMLESS: &str = "kick-delay:200us,kick-dup:0.1,spurious:0.1,halt-delay:200us";

fn faults_are_in_the_stats() -> anyhow::Result<()> {
    let boot = Boot::direct().with("--cpus 4 --policy rr --slots 2 --fault spurious:0.3");
    let (ran, stats) = boot.measure(["lockbench", "--seconds", "2"])?;
    ran.stderr_has(&["pvticket: faults: 0 kicks dropped"])?;
    expect_usually!(count(&stats, "faults/spurious")? > 0, "no faults: {stats:#}");
    Ok(())
}

/// Two of four CPUs run and kick. Each kick also wakes another vCPU, sometimes one of the two that are never
/// started, which must block again. Regression: they entered KVM 10^5 times a second.
fn kicks_of_cpus_that_stay_down_make_no_thread_spin() -> anyhow::Result<()> {
    let boot = Boot::direct()
        .with("--cpus 4")
        .option("--append", "maxcpus=2 pvticket_spin=1")
        .with("--fault spurious:1");
    let (_, stats) = boot.measure(["lockbench", "--seconds", "2"])?;
    let exits = |vcpu: usize| count(&stats, &format!("vmm/vcpus/{vcpu}/exits"));
    let seconds = count(&stats, "ran_ns")? / 1_000_000_000 + 1;
    expect_usually!(exits(2)? + exits(3)? > 2, "no kick woke an offline vCPU: {stats:#}");
    for vcpu in [2, 3] {
        let limit = 100 * seconds + 100;
        ensure!(exits(vcpu)? <= limit, "vCPU {vcpu}: {} exits, not {limit}", exits(vcpu)?);
    }
    Ok(())
}
