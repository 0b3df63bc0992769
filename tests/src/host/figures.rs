//! Figures that can be obtained in two ways: one part of the product counts them, another part measures or
//! records them. Comments give the reason for each tolerance.

use crate::{
    prelude::*,
    product::{Results, profile_folder},
};

kvm::tests![
    injected_preemptions_are_counted_as_lhp => Quiet("rate in the table within 5 % of a count read at other moments"),
    wasted_time_matches_the_guests_waits => Quiet("ns counted by the schedule against ns timed by the guest"),
    a_vcpu_that_is_stuck_is_in_the_latencies,
    a_vcpu_that_spins_runs_or_waits_for_a_cpu => Quiet("run + wait within 20 % of the window, window within 50 ms"),
    a_vmm_alone_is_small,
];

/// Duration of an injected preemption of a holder.
const HOLD_NS: u64 = 10_000_000;

/// Compares native and PV locks, one run each, on two vCPUs with a slot each: the policy makes all
/// preemptions.
fn compare_under_lhp(options: &str) -> anyhow::Result<Results> {
    let words = "--guest payload --host direct --runs 1 --latency --vcpus 2 --slots 2";
    Ok(Compared::with_options(&format!("{words} {options}"))?.results)
}

/// Returns the row and the run of a backend.
fn row_and_run(results: &Results, backend: &str) -> anyhow::Result<[Value; 2]> {
    let find = |list: Vec<Value>| {
        let mut list = list.into_iter();
        list.find(|entry| entry["backend"] == backend).with_context(|| format!("no {backend}"))
    };
    Ok([find(results.levels()?.concat())?, find(results.runs()?)?])
}

/// Compares the policy's hits, the account's LHP count, and the rate in the table. The first two cover the
/// whole run and the same preemptions, so they have no tolerance. The rate covers the window; at either end,
/// the account is read a moment after the guest's seconds. On a busy host these moments may differ by some
/// milliseconds.
fn injected_preemptions_are_counted_as_lhp() -> anyhow::Result<()> {
    let results = compare_under_lhp("--policy lhp:50,4ms --seconds 1")?;
    for backend in ["off", "vmm"] {
        let [row, run] = &row_and_run(&results, backend)?;
        let [total, measured] = ["whole", "measured"].map(|which| &run["schedule"][which]);
        let hits = count(&total["hits"], "hits")?;
        expect_usually!(hits >= 3, "hardly a holder was preempted: {total}");
        ensure!(hits == count(total, "injected")?, "{total}");
        ensure!(hits == count(total, "lhp")?, "a preempted vCPU held no lock: {total}");
        let seconds = run["seconds"].as_f64().context("no seconds")?;
        let rate = row["schedule"]["lhp"].as_f64().context("no LHP/s")?;
        let lhp = count(measured, "lhp")?;
        ensure!(count(&row["schedule"]["hits"], "hits")? == lhp, "not all of the window: {row}");
        let gap = (rate * seconds - lhp as f64).abs();
        expect_usually!(gap <= 0.05 * lhp as f64, "{rate}/s, {lhp} in {seconds} s: {row}");
        ensure!(lhp <= hits, "more in a part than in the whole: {run}");
        // Intervals are exponentially distributed, so less regular than the mean suggests. If preemptions had
        // no length, 50 in one second would have a standard deviation of 7. Six of these are exceeded once in
        // 10^7 runs.
        let limit = 50.0 * seconds + 6.0 * (50.0 * seconds).sqrt();
        ensure!(rate * seconds <= limit, "{rate} a second: {run}");
    }
    Ok(())
}

/// Two vCPUs contend for one native lock: while the holder is preempted, the other vCPU spins. The account
/// has that time by the schedule's clock, and the guest's histogram of waits by the TSC. The guest may have
/// waited longer, because the host preempts holders, too, which the account does not see.
fn wasted_time_matches_the_guests_waits() -> anyhow::Result<()> {
    let results = compare_under_lhp("--policy lhp:20,10ms --seconds 1 --locks ticket")?;
    let [_, run] = &row_and_run(&results, "off")?;
    let wasted = count(&run["schedule"]["measured"], "wasted_spin_ns")?;
    expect_usually!(wasted >= 2 * HOLD_NS, "hardly anything was wasted: {run}");
    let waits = run["latencies"].as_array().context("no waits")?.iter();
    let waits = waits.filter_map(|wait| Some((wait[0].as_u64()?, wait[1].as_u64()?)));
    // On a calm host no other wait is nearly as long.
    let long = waits.filter(|(nanos, _)| *nanos >= HOLD_NS / 2);
    let waited: u64 = long.map(|(nanos, count)| nanos * count).sum();
    // The histogram gives a wait's bucket, which begins up to a sixteenth below the wait. At each end of the
    // window a hold may be in only one of the two counts.
    let tolerance = wasted / 16 + 2 * HOLD_NS;
    expect_usually!(wasted <= waited + tolerance, "{wasted} ns wasted, {waited} ns waited: {run}");
    Ok(())
}

/// One preemption outlasts the run: the waiter for that holder waits until the end, and its wait is not among
/// the completed waits.
fn a_vcpu_that_is_stuck_is_in_the_latencies() -> anyhow::Result<()> {
    let results = compare_under_lhp("--policy lhp:20,60s --seconds 0.5 --locks ticket")?;
    let [row, run] = &row_and_run(&results, "off")?;
    expect_usually!(
        count(&run["schedule"]["whole"]["hits"], "hits")? > 0,
        "no vCPU was preempted: {run}"
    );
    // A holder that is preempted before it returns from its call has not ended its wait, either.
    ensure!((1..=2).contains(&count(run, "open_waits")?), "unexpected waits at the end: {run}");
    let times = &row["latencies"];
    // The wait may have begun in the warm-up. At twenty a second it has begun within the first half.
    expect_usually!(count(times, "max")? > 200_000_000, "{times}");
    expect_usually!(count(&times["by_time"], "p50")? > 200_000_000, "{times}");
    let least = count(&times["by_time"], "p99")?;
    ensure!(least >= count(&times["by_time"], "p50")? && least <= count(times, "max")?, "{times}");
    Ok(())
}

/// vCPUs with native locks never block: when they do not run, they wait in the host's run queue. Both times
/// come from the host's scheduler, the window from the clock, and there are two CPUs.
///
/// Tolerance: the scheduler updates a thread's time at its ticks and its waits when it gets a CPU, so a slice
/// and a wait at each end of the window count late: some tens of milliseconds in a second.
fn a_vcpu_that_spins_runs_or_waits_for_a_cpu() -> anyhow::Result<()> {
    let words = "--guest payload --host direct --runs 1 --vms 2 --vcpus 2 --slots 2 --locks ticket --seconds 1";
    let run = Compared::with_options(words)?.run()?;
    let machines = run["host"].as_array().context("no counts of the host")?;
    ensure!(machines.len() == 2, "not of each machine: {run}");
    let mut sum = 0;
    for machine in machines {
        let window = count(machine, "window_ns")?;
        let seconds = run["seconds"].as_f64().context("no seconds")?;
        expect_usually!((window as f64 / 1e9 - seconds).abs() < 0.05, "{seconds} s: {machine}");
        let vcpus = machine["vcpus"].as_array().context("no vCPUs")?;
        ensure!(vcpus.len() == 2, "not of each vCPU: {machine}");
        for vcpu in vcpus {
            let (ran, waited) = (count(vcpu, "ran_ns")?, count(vcpu, "waited_ns")?);
            sum += ran;
            let gap = (ran + waited).abs_diff(window);
            expect_usually!(gap < window / 5, "{ran} run and {waited} waited of {window}: {run}");
            expect_usually!(ran > 0 && waited > 0 && count(vcpu, "turns")? > 1, "{run}");
        }
        // Mainline KVM counts no PAUSE exits on x86, and the payload requests no yield.
        ensure!(machine["pause_exits"].is_null(), "{machine}");
        ensure!(machine["yields_attempted"].as_u64().unwrap_or(0) == 0, "{machine}");
    }
    let window = count(&machines[0], "window_ns")?;
    ensure!(sum < 2 * window + window / 5, "{sum} ns on two CPUs in {window} ns: {run}");
    Ok(())
}

/// Memory of a lone VMM without its guest's, and of the last of ten. The program's pages are checked for
/// release builds only, because other builds have larger ones.
fn a_vmm_alone_is_small() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("json");
    let bench = pvticket(["bench", "boot", "--host", "direct", "--runs", "1", "--json"]);
    let text = bench.args([&file]).run()?.exits(0)?.text()?.to_owned();
    let report = files::json(&file)?;
    let memory = &report["samples"]["tiny_memory"];
    let [alone, tenth] = ["alone", "tenth"].map(|which| &memory[which][0]);
    let resident = count(alone, "rss_kib")?;
    let is_release = profile_folder()?.ends_with("release");
    ensure!(resident >= 100 && (resident <= 2048 || !is_release), "{resident} KiB: {text}");
    let anonymous = count(alone, "anonymous_kib")?;
    ensure!((50..=1024).contains(&anonymous), "{anonymous} KiB: {text}");
    // No other process maps the copy that is measured; the vDSO is shared by all.
    ensure!(resident - count(alone, "pss_kib")? <= 64, "another process shares its pages: {alone}");
    let share = count(tenth, "pss_kib")?;
    ensure!(share < resident && share > count(tenth, "anonymous_kib")?, "{tenth} of {alone}");
    ensure!(text.contains("VMM alone, resident") && text.contains("last of 10 VMMs"), "{text}");
    Ok(())
}
