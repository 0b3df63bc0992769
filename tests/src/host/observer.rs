//! The observer of the host's own scheduler: its figures and other accounts' for the same work, and its losses.

use super::emulated::{need_kernel_7, shell};
use crate::prelude::*;

kvm::tests![
    the_hosts_kernel_counts_as_many_slices,
    our_schedule_preempts_holders_as_often,
    lost_records_are_reported,
    a_cell_that_is_not_to_be_observed_has_no_account,
];

/// Runs in the emulated host.
pub mod emulated {
    use super::*;

    tests![
        three_accounts_agree_on_the_preempted_holders,
        kernel_6_1_observes_linux_guests_unless_it_may_not,
        each_directed_yield_has_an_outcome,
    ];
}

/// The observer's, and both drivers' under `rr`.
fn three_accounts_agree_on_the_preempted_holders() -> anyhow::Result<()> {
    need_kernel_7()?;
    have_equal_shares("--host emulated --host-kernel 7 --set drivers=user,bpf", 3)
}

/// Two machines with a vCPU each take turns on one CPU.
const TURNS: &str = "compare --guest payload --vcpus 1 --vms 2 --slots 1 --locks ticket --runs 1";

fn runs(words: &str) -> anyhow::Result<Vec<Value>> {
    let runs = Compared::new(pvticket(words.split_whitespace()).limit(400))?.runs()?;
    match runs.iter().find_map(|run| run["unobserved"].as_str()) {
        Some(reason) => skip(format!("the host's scheduler is not observed: {reason}")),
        None => Ok(runs),
    }
}

fn measured(run: &Value, name: &str) -> anyhow::Result<u64> {
    count(run, &format!("schedule/measured/{name}"))
}

/// `/proc/PID/schedstat` is read a moment after the account at each end of the window.
fn the_hosts_kernel_counts_as_many_slices() -> anyhow::Result<()> {
    let runs = runs(&format!("{TURNS} --host direct --policy host --seconds 1"))?;
    let [run] = &runs[..] else { bail!("{runs:?}") };
    let (slices, preemptions) = (measured(run, "grants")?, measured(run, "preemptions")?);
    let machines = run["host"].as_array().context("no counts")?.iter();
    let counts: Option<Vec<u64>> =
        machines.map(|counts| counts["vcpus"][0]["turns"].as_u64()).collect();
    let counted: u64 = counts.context("no slices are counted")?.iter().sum();
    expect_usually!(slices > 50, "hardly any slices: {run}");
    expect_usually!(slices.abs_diff(counted) <= 10, "{slices}, the kernel counts {counted}: {run}");
    // These vCPUs never sleep.
    ensure!(preemptions.abs_diff(slices) <= 10, "{run}");
    Ok(())
}

/// Each lock has one user, so a preempted vCPU holds it with the probability of the share of time for which
/// it does: two thirds here, under any schedule and in any account.
fn have_equal_shares(options: &str, accounts: usize) -> anyhow::Result<()> {
    let work = "--set critical=2000 --set think=1000 --policy host,rr --seconds 4";
    let runs = runs(&format!("{TURNS} {work} {options}"))?;
    ensure!(runs.len() == accounts, "{} accounts", runs.len());
    for run in &runs {
        let [all, holders] = ["preemptions", "lhp"].map(|name| measured(run, name));
        let (all, share) = (all?, holders? as f64 / measured(run, "preemptions")? as f64);
        expect_usually!(all > 200, "hardly any preemptions: {run}");
        // The standard deviation for 200 preemptions is 0.033.
        expect_usually!((share - 0.667).abs() < 0.15, "{share} of {all} were holders: {run}");
        ensure!(measured(run, "lwp")? == 0 && measured(run, "queued")? == 0, "no waiters: {run}");
        ensure!(measured(run, "wasted_spin_ns")? == 0, "nobody waits: {run}");
    }
    Ok(())
}

fn our_schedule_preempts_holders_as_often() -> anyhow::Result<()> {
    have_equal_shares("--host direct", 2)
}

fn lost_records_are_reported() -> anyhow::Result<()> {
    let words =
        "compare --guest payload --host direct --vcpus 4 --slots 1 --locks pv-ticket --runs 1";
    let small = pvticket(words.split_whitespace()).env("PVTICKET_BPF_FAULT", "ring");
    let compared = Compared::new(small)?;
    let run = compared.run()?;
    if let Some(reason) = run["unobserved"].as_str() {
        return skip(reason);
    }
    expect_usually!(count(&run, "schedule/lost")? > 0, "a page of 23 records was enough: {run}");
    let text = compared.ran.words()?;
    ensure!(text.contains("queued/s and wasted are too low: "), "{text}");
    Ok(())
}

fn a_cell_that_is_not_to_be_observed_has_no_account() -> anyhow::Result<()> {
    let words = "--host direct --policy host --seconds 0.1 --set observe=on,off";
    let runs = runs(&format!("{TURNS} {words}"))?;
    ensure!(runs.len() == 2, "{runs:?}");
    for run in runs {
        let is_off = run["observe_off"] == true;
        ensure!(run["schedule"].is_null() == is_off && run["unobserved"].is_null(), "{run}");
    }
    Ok(())
}

/// Without capabilities, and with.
fn kernel_6_1_observes_linux_guests_unless_it_may_not() -> anyhow::Result<()> {
    let compare =
        "/init compare --guest linux --vcpus 3 --slots 1 --locks ticket --runs 1 --seconds 0.5";
    let script = format!("BUSYBOX unshare -U -r {compare}; {compare}");
    let ran = shell(&["--host-kernel", "6.1"], &script).limit(400).run()?.exits(0)?;
    let text = ran.words()?;
    let reason = "The host's scheduler was not observed: this host needs: root, or CAP_BPF and";
    let (before, after) = text.split_once(" LHP/s ").with_context(|| text.clone())?;
    ensure!(before.contains(reason) && !after.contains(reason), "{text}");
    Ok(())
}

/// A kick by KVM's hypercall is followed by a yield to the kicked vCPU.
fn each_directed_yield_has_an_outcome() -> anyhow::Result<()> {
    let words = "compare --guest payload --host emulated --vcpus 4 --slots 2 --locks pv-ticket --pv-backends kvm \
                 --policy host --runs 1 --seconds 1";
    let compared = Compared::new(pvticket(words.split_whitespace()).limit(400))?;
    let run = compared.run()?;
    let sum = |names: &[&str]| -> anyhow::Result<u64> {
        names.iter().map(|name| measured(&run, &format!("directed/{name}"))).sum()
    };
    let kicks = sum(&["kicks"])?;
    ensure!(kicks > 0 && sum(&["spins", "calls"])? == 0, "{run}");
    let asked = sum(&["holder", "next", "queued", "bystander", "unknown"])?;
    let outcomes = sum(&["honoured", "late", "bounced", "refused"])?;
    ensure!([asked, outcomes] == [kicks; 2], "{kicks}, {asked}, {outcomes}: {run}");
    let text = compared.ran.words()?;
    ensure!(text.contains("Directed yields of KVM, in % point yields/s kick "), "{text}");
    Ok(())
}
