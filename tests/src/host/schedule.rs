//! Schedules of pvticket on the ring-3 payload: preemptions where requested, counted from telemetry, recorded
//! and replayed.

use crate::prelude::*;

kvm::tests![
    every_policy_runs_both_locks,
    holders_are_preempted_on_request: deliberate("lhp:10,20ms", "lhp", "holders_off_ns") => Quiet("share of a hold for which others spun: > 0.5 and < 0.3"),
    the_next_in_line_are_preempted_on_request: deliberate("lwp:10,20ms", "lwp", "next_off_ns") => Quiet("share of a hold for which others spun: > 0.5 and < 0.3"),
    the_next_in_line_of_a_queue_are_preempted_on_request,
    named_places_are_hit,
    deferred_preempts_no_vcpu_in_a_lock,
    a_spinning_waiter_yields_to_the_holder => Quiet("rate of two policies, factor 3"),
    several_machines_share_slots_as_gangs,
    machines_get_shares_by_weight => Quiet("ratio of operations 2 to 4.5"),
    two_replays_take_the_same_decisions,
    many_vcpus_on_two_slots_lose_no_kick,
];

/// Compares the payload; returns the runs with their accounts, by policy, native before PV.
fn compare(options: &str) -> anyhow::Result<Vec<Value>> {
    let mut runs =
        Compared::with_options(&format!("--guest payload --runs 1 {options}"))?.runs()?;
    for run in &runs {
        ensure!(run["violations"] == 0, "mutual exclusion failed, or was not checked: {run}");
        ensure!(total(run, "grants")? > 0, "no schedule: {run}");
    }
    // The seed decides the order of the runs.
    runs.sort_by_key(|run| (run["policy"].to_string(), run["backend"] != "off"));
    Ok(runs)
}

/// Returns a count from the whole run's account.
fn total(run: &Value, name: &str) -> anyhow::Result<u64> {
    count(run, &format!("schedule/whole/{name}"))
}

/// Checks that each policy is among these, which may have arguments. The error for an unknown policy lists
/// all.
pub fn has_all_policies(policies: &[&str]) -> anyhow::Result<()> {
    let refused = pvticket(["compare", "--policy", "nonsense"]).run()?.errors();
    let list = refused.split_once("(known: ").and_then(|(_, rest)| rest.split_once(')'));
    let (list, _) = list.with_context(|| format!("no list of policies: {refused}"))?;
    for policy_name in list.split(", ") {
        // `host` has no account of a schedule, its models are for simulations, and `replay` needs a recording.
        let is_other = policy_name.starts_with("host") || policy_name == "replay";
        let is_named = policies.iter().any(|policy| policy.split(':').next() == Some(policy_name));
        ensure!(is_other || is_named, "{policy_name} is missing here");
    }
    Ok(())
}

fn every_policy_runs_both_locks() -> anyhow::Result<()> {
    let policies = "rr,fair,gang,kick-boost,kick-boost:later,directed-yield,deferred,deferred:look,\
                    extend:100us,lhp,lwp,point:critical,random";
    has_all_policies(&policies.split(',').collect::<Vec<_>>())?;
    let runs = compare(&format!("--vcpus 2x --seconds 0.3 --slice 1ms --policy {policies}"))?;
    ensure!(runs.len() == 26, "{} runs", runs.len());
    for run in runs {
        expect_usually!(operations(&run) > 0, "the lock was never taken: {run}");
        ensure!(total(&run, "unknown")? == 0, "unclassified preemptions: {run}");
    }
    Ok(())
}

/// Each deliberate preemption takes a vCPU's CPU for 20 ms. With native locks another vCPU spins for that
/// long; with PV locks it halts at its spin threshold.
fn deliberate(policy: &str, kind: &str, off: &str) -> anyhow::Result<()> {
    let runs = compare(&format!("--vcpus 2 --slots 2 --seconds 1 --policy {policy}"))?;
    let [native, pv] = runs.as_slice() else { bail!("not two runs") };
    for run in [native, pv] {
        let (hits, injected) = (total(run, "hits/hits")?, total(run, "injected")?);
        ensure!(hits == injected, "{injected} of {hits} hits: {run}");
        expect_usually!(injected >= 3, "{injected} hits: {run}");
        // Two vCPUs on two slots: there are no other preemptions.
        ensure!(total(run, kind)? == injected, "not all were {kind}: {run}");
        ensure!(total(run, "preemptions")? == injected, "{run}");
        // The last preemption may be ongoing when the account is closed.
        let (off, least) = (total(run, off)?, (injected - 1) * 19_900_000);
        ensure!(off >= least, "off for {off} ns: {run}");
        expect_usually!(off < injected * 200_000_000, "off for {off} ns: {run}");
    }
    let wasted = |run| anyhow::Ok(total(run, "wasted_spin_ns")? as f64 / total(run, off)? as f64);
    let (in_native, in_pv) = (wasted(native)?, wasted(pv)?);
    // Nearly 1 on a quiet host; other processes also take the waiters' CPU.
    expect_usually!(in_native > 0.5, "native waiters spun for {in_native} of it");
    expect_usually!(in_pv < 0.3, "PV waiters spun for {in_pv} of it");
    expect_usually!(pv["halts"].as_u64() > Some(0), "PV waiters never halted: {pv}");
    Ok(())
}

/// Locks without tickets whose queue shows which vCPU is next, and a lock that has no queue.
fn the_next_in_line_of_a_queue_are_preempted_on_request() -> anyhow::Result<()> {
    let runs = compare(
        "--vcpus 2 --slots 2 --seconds 0.5 --policy lwp:20,5ms \
         --locks queued,pv-queued,unfair-queued,mcs,clh,reciprocating,test-and-set",
    )?;
    ensure!(runs.len() == 7, "{} runs", runs.len());
    for run in runs {
        let injected = total(&run, "injected")?;
        if run["lock"] == "test-and-set" {
            ensure!(injected == 0 && total(&run, "lwp")? == 0, "it has no order: {run}");
            continue;
        }
        expect_usually!(injected >= 3, "{injected} hits: {run}");
        // Two vCPUs on two slots: there are no other preemptions.
        let (lwp, preempted) = (total(&run, "lwp")?, total(&run, "preemptions")?);
        ensure!((lwp, preempted) == (injected, injected), "not all were next: {run}");
    }
    Ok(())
}

fn named_places_are_hit() -> anyhow::Result<()> {
    let hits = |run: &Value| run["schedule"]["whole"]["hits"]["hits"].as_u64();
    for place in ["before-flag", "flag-to-halt", "release-to-kick", "critical"] {
        let options = "--vcpus 2x --seconds 0.5 --slice 1ms --policy point";
        let runs = compare(&format!("{options}:{place},50,1ms"))?;
        let [native, pv] = runs.as_slice() else { bail!("not two runs") };
        expect_usually!(hits(pv) > Some(0), "{place} was never hit: {pv}");
        if place != "critical" {
            ensure!(hits(native) == Some(0), "native locks have no {place}: {native}");
            continue;
        }
        expect_usually!(hits(native) > Some(0), "never hit: {native}");
        // A vCPU that is preempted in its critical section holds the lock.
        for run in [native, pv] {
            ensure!(total(run, "lhp")? >= total(run, "injected")?, "{run}");
        }
    }
    Ok(())
}

fn deferred_preempts_no_vcpu_in_a_lock() -> anyhow::Result<()> {
    let options = "--vcpus 2x --seconds 0.5 --slice 1ms --policy";
    for policy in ["deferred:ask,1s", "deferred:look,1s"] {
        for run in compare(&format!("{options} {policy}"))? {
            let [lhp, lwp, queued] =
                ["lhp", "lwp", "queued"].map(|kind| total(&run, kind).unwrap_or(u64::MAX));
            ensure!((lhp, lwp, queued) == (0, 0, 0), "{policy}: {lhp} {lwp} {queued}: {run}");
            expect_usually!(
                total(&run, "preemptions")? + total(&run, "yields")? > 10,
                "no slices: {run}"
            );
        }
    }
    let first = &compare(&format!("{options} deferred"))?[0];
    expect_usually!(total(first, "yields")? > 0, "no vCPU was asked, or none yielded: {first}");
    Ok(())
}

fn a_spinning_waiter_yields_to_the_holder() -> anyhow::Result<()> {
    let runs = compare("--vcpus 2x --seconds 0.5 --policy rr,directed-yield")?;
    // Sorted by policy: directed-yield native, pv, rr native, pv.
    let (directed, rr) = (operations(&runs[0]), operations(&runs[2]));
    expect_usually!(directed > 3 * rr, "directed yields gained nothing: {directed} against {rr}");
    Ok(())
}

fn several_machines_share_slots_as_gangs() -> anyhow::Result<()> {
    for run in compare("--vms 3 --vcpus 1x --seconds 0.3 --policy gang")? {
        let counts = each_operations(&run);
        ensure!(counts.len().is_multiple_of(3) && !counts.is_empty(), "not three machines: {run}");
        expect_usually!(!counts.contains(&0), "a machine made no progress: {run}");
    }
    Ok(())
}

/// VMs of one vCPU each on one slot, with native locks: their operations are proportional to their time.
fn machines_get_shares_by_weight() -> anyhow::Result<()> {
    let options = "--vms 2 --vcpus 1 --slots 1 --seconds 0.5 --slice 1ms --policy fair:1,3";
    let runs = compare(options)?;
    let [light, heavy] = each_operations(&runs[0])[..] else { bail!("not two vCPUs: {}", runs[0]) };
    let share = heavy as f64 / light as f64;
    expect_usually!((2.0..4.5).contains(&share), "{share} times as much, not 3: {}", runs[0]);
    Ok(())
}

/// Returns the vCPU and the slot of each time slice of a recording.
fn decisions(file: &Path) -> anyhow::Result<Vec<(u32, u16)>> {
    Ok(files::slices(file)?.into_iter().map(|slice| (slice.vcpu, slice.slot)).collect())
}

fn two_replays_take_the_same_decisions() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let [first, second, third] = ["a", "b", "c"].map(|name| folder.path().join(name));
    let run = |policy: &str, file: &Path| {
        // Records the schedule of the last run.
        pvticket(["compare", "--vcpus", "2x", "--runs", "1", "--seconds", "0.4", "--slice", "1ms"])
            .args(["--policy", policy, "--record"])
            .args([file])
            .run()?
            .exits(0)
            .map(drop)
    };
    run("random", &first)?;
    let mismatched = pvticket(["compare", "--vcpus", "3", "--runs", "1", "--policy"])
        .args([format!("replay:{}", first.display())])
        .run()?;
    mismatched.fails(2, &["--policy replay:", "vCPUs on", "but this is 3"])?;
    let replay = format!("replay:{}", first.display());
    run(&replay, &second)?;
    run(&replay, &third)?;
    let [first, second, third] = [decisions(&first)?, decisions(&second)?, decisions(&third)?];
    let common = second.len().min(third.len()).min(first.len());
    expect_usually!(common > 50, "only {common} decisions");
    ensure!(second[..common] == third[..common], "two replays differ");
    Ok(())
}

fn many_vcpus_on_two_slots_lose_no_kick() -> anyhow::Result<()> {
    let options = "--vcpus 64 --slots 2 --seconds 2 --slice 1ms --policy random --set seeds=7";
    let runs = compare(options)?;
    for run in &runs {
        expect_usually!(operations(run) > 0, "the lock was never taken: {run}");
        // The guest's window lies within the VMM's. The guest counts a halt when it ends, the VMM when it
        // begins: each vCPU may have been in a halt when the window began.
        let (guest, vmm) = (run["halts"].as_u64(), run["vmm"]["lock_spinning"].as_u64());
        let vmm = vmm.map(|counted| counted + 64);
        ensure!(guest <= vmm, "{guest:?} halts in the guest, {vmm:?} at most here");
        let [kicks, woke, pending, joined] =
            ["unlock_kick", "woke_parked", "left_pending", "coalesced"]
                .map(|name| run["vmm"][name].as_u64().unwrap_or(u64::MAX));
        let sorted = woke + pending + joined;
        // One kick per vCPU may be in progress when the counters are read.
        ensure!(kicks.abs_diff(sorted) <= 64, "{kicks} kicks, {sorted} of them known: {run}");
    }
    Ok(())
}
