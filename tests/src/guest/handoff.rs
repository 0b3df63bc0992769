//! Cheaper handoffs in the kernel's locks: each variant is correct and takes effect.

use super::locks::{Counted, torture_of};
use crate::prelude::*;

tests![
    the_kernel_reports_enabled_handoffs,
    unsupported_handoffs_are_ignored,
    torture_with_far_and_adapt: torture("far:2+adapt", ["vmm", "kvm"]) => Long("12 s of locktorture; with all of them in make test"),
    torture_with_claim_and_ahead: torture("claim+ahead", ["vmm", "doorbell"]) => Long("12 s of locktorture; with all of them in make test"),
    torture_with_limited_queues: torture("queue:2", ["vmm", "doorbell"]) => Long("12 s of locktorture; with all of them in make test"),
    torture_with_all_of_them: torture("far:2+adapt+claim+ahead+queue:3", ["doorbell", "kvm"]),
    torture_with_predecessor => Long("12 s of locktorture; with all of them in make test"),
    far_waiters_halt_early,
    limited_queues_throttle_waiters,
    limited_queues_count_alike_on_both_sides: Counted::from_boot(Boot::direct().with("--handoff claim+queue:2"))?.count_alike(),
];

/// Returns the kernel's messages about handoffs.
fn messages(boot: Boot) -> anyhow::Result<String> {
    let ran = boot.with("--cpus 2").script("dmesg | grep 'pvticket: handoff'").run()?.exits(0)?;
    Ok(ran.text()?.into())
}

fn the_kernel_reports_enabled_handoffs() -> anyhow::Result<()> {
    let text = messages(Boot::direct().with("--handoff queue:3+far:2+adapt+claim+ahead"))?;
    ensure!(text.trim().ends_with("on: far:2 adapt claim ahead queue:3"), "{text}");
    Ok(())
}

fn unsupported_handoffs_are_ignored() -> anyhow::Result<()> {
    let text = messages(Boot::direct().with("--handoff fuse+predecessor"))?;
    ensure!(text.contains("fuse is ignored: ") && !text.contains("on:"), "{text}");
    // The VMM requests telemetry only under a schedule or with faults.
    ensure!(text.contains("predecessor is ignored: "), "{text}");
    let text = messages(Boot::direct().with("--append pvticket_handoff=claim+far:0"))?;
    ensure!(text.contains("'far:0' is ignored") && text.contains("on: claim"), "{text}");
    Ok(())
}

fn torture(words: &str, backends: [&str; 2]) -> anyhow::Result<()> {
    for pv in backends {
        torture_of(Boot::direct().option("--pv", pv).option("--handoff", words))?;
    }
    Ok(())
}

/// `predecessor` needs telemetry, which a schedule enables.
fn torture_with_predecessor() -> anyhow::Result<()> {
    for words in ["predecessor", "predecessor+claim+queue:2"] {
        torture_of(Boot::direct().with("--policy rr --slots 2").option("--handoff", words))?;
    }
    Ok(())
}

fn far_waiters_halt_early() -> anyhow::Result<()> {
    let counted = Counted::from_boot(Boot::direct().with("--handoff far:1"))?;
    let (early, halts) = (counted.guest("halted_early")?, counted.halts()?);
    expect_usually!(early > 0 && halts > 0, "{early} waits did not spin, {halts} halts");
    Ok(())
}

/// Throttled waiters are admitted from time to time, so none starves.
fn limited_queues_throttle_waiters() -> anyhow::Result<()> {
    let counted = Counted::from_boot(Boot::direct().with("--pv doorbell --handoff queue:1"))?;
    let throttled = counted.guest("stood_outside")?;
    expect_usually!(throttled > 0 && counted.fewest() > 0, "{throttled} throttled waits");
    Ok(())
}
