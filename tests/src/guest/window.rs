//! The window of a benchmark: guests and VMM count between the same two moments.

use crate::prelude::*;

tests![
    injected_preemptions_are_counted_in_the_window => Quiet("90 s: it counts preemptions that were asked for at fixed rates"),
    warm_up_does_not_count,
    machines_side_by_side_are_measured_together,
    telemetry_counts_operations,
    telemetry_counts_operations_of_two_vcpus => Quiet("two readings of a window agree within 1 %"),
];

fn number(value: &Value, name: &str) -> anyhow::Result<f64> {
    value[name].as_f64().with_context(|| format!("no {name} in {value}"))
}

/// Runs a comparison under a schedule. Its heading must name the locks that its figures cover.
fn compare(words: &str) -> anyhow::Result<Vec<Value>> {
    let program = pvticket(["compare", "--host", "direct", "--guest", "linux"]);
    let compared = Compared::new(program.args(words.split_whitespace()).limit(240))?;
    let text = compared.ran.words()?;
    ensure!(text.contains("lower bounds; in Linux guests they cover spinlocks only"), "{text}");
    compared.runs()
}

/// With a slot per vCPU, only the policy preempts: at most 50 times a second, however long the guests boot.
/// (Two more for the ends of the window: a policy that is late once catches up.)
fn injected_preemptions_are_counted_in_the_window() -> anyhow::Result<()> {
    for run in compare("--vcpus 2 --policy lhp:50,5ms --runs 1 --seconds 1")? {
        let measured = &run["schedule"]["measured"];
        let (lhp, injected) = (number(measured, "lhp")?, number(measured, "injected")?);
        ensure!(lhp == injected, "{lhp} holders, {injected} of them on purpose: {measured}");
        let seconds = number(&run, "seconds")?;
        ensure!(lhp <= 50.0 * seconds + 2.0, "{lhp} holders in {seconds} s");
        expect_usually!(lhp > 0.0, "no holder was preempted: {measured}");
        let spun = number(measured, "wasted_spin_ns")? / 1e9;
        ensure!(spun <= 2.0 * seconds + 0.01, "two slots spun for {spun} s in {seconds} s");
    }
    Ok(())
}

/// The benchmark checks mutual exclusion by a sum over warm-up and window.
fn warm_up_does_not_count() -> anyhow::Result<()> {
    let script = "for time in 0.001 2; do lockbench --warm-up $time --seconds 0.2 || exit 1; done; \
        cat /sys/kernel/debug/pvticket/window";
    let ran = Boot::direct().with("--cpus 2").script(script).run()?.exits(0)?;
    let text = ran.text()?;
    let (benches, window): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('{'));
    ensure!(benches.len() == 2, "{}", ran.show());
    for bench in benches {
        let bench: Value = serde_json::from_str(bench).with_context(|| ran.show())?;
        ensure!(bench["violations"] == 0, "mutual exclusion failed: {bench}");
        // With the warm-up, the second benchmark would take 2.2 s.
        let seconds = number(&bench, "seconds")?;
        expect_usually!(seconds < 2.0, "a window of {seconds} s");
        ensure!(number(&bench["stats"], "windows")? == 1.0, "{bench}");
        let nanos = number(&bench["stats"], "window_ns")?;
        ensure!((nanos / 1e9 - seconds).abs() < 0.001, "counted for another time: {bench}");
    }
    ensure!(window.contains(&"windows 2"), "{}", ran.show());
    Ok(())
}

/// The second VM is created later; neither is measured before both contend.
fn machines_side_by_side_are_measured_together() -> anyhow::Result<()> {
    for run in compare("--vcpus 1 --vms 2 --policy rr --slots 1 --runs 1 --seconds 0.5")? {
        ensure!(each_operations(&run).len() == 2, "{run}");
        let measured = &run["schedule"]["measured"];
        // They share one slot: a VM measured alone has it all the time.
        expect_usually!(
            number(measured, "preemptions")? > 10.0,
            "hardly any preemptions: {measured}"
        );
    }
    Ok(())
}

/// Upper bound on the locks that a vCPU of a Linux guest takes per second outside of the benchmark (timer
/// ticks, RCU, workers). Measured: 500 to 1000.
const OTHER_LOCKS: f64 = 10_000.0;

/// Each operation of the benchmark takes one ticketlock, and each vCPU counts its acquisitions in its
/// telemetry line, which the VMM reads at the window's ends. A guest of one vCPU reads its own counts at the
/// same moment, with no acquisition in between: no operation can be missing.
fn telemetry_counts_operations() -> anyhow::Result<()> {
    for Locks { others, max_others, description, .. } in locks(1)? {
        ensure!((0.0..=max_others).contains(&others), "{description}");
    }
    Ok(())
}

/// With two vCPUs, one continues while the other reads. On a calm host, the time between the two readings
/// differs between the ends by less than a hundredth of the window.
fn telemetry_counts_operations_of_two_vcpus() -> anyhow::Result<()> {
    for Locks { operations, others, max_others, description } in locks(2)? {
        let moved = 0.01 * operations;
        expect_usually!((-moved..=max_others + moved).contains(&others), "{description}");
    }
    Ok(())
}

/// Operations of a run, the other locks that its telemetry counted, and the largest number allowed for these.
struct Locks {
    operations: f64,
    others: f64,
    max_others: f64,
    description: String,
}

fn locks(vcpus: u32) -> anyhow::Result<Vec<Locks>> {
    let runs = compare(&format!("--vcpus {vcpus} --policy rr --runs 1 --seconds 0.5"))?;
    let counted = |run: &Value| {
        let operations = operations(run) as f64;
        let (taken, seconds) = (number(run, "locks_taken")?, number(run, "seconds")?);
        let description = format!("{operations} operations, {taken} locks taken in {seconds} s");
        let max_others = OTHER_LOCKS * f64::from(vcpus) * seconds;
        Ok(Locks { operations, others: taken - operations, max_others, description })
    };
    runs.iter().map(counted).collect()
}
