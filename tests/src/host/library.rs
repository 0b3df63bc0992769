//! The lock library: its list, and each of its locks in a VM.

use super::faults::HARMLESS;
use crate::{prelude::*, product::check_rows};

kvm::tests![
    every_lock_keeps_its_promises_at_1x_and_2x: are_sound("--locks all --vcpus 1x,2x --seconds 0.3") => Long("17 s: all locks, twice; with faults in make test"),
    every_lock_bears_faults_and_random_preemption: are_sound(&format!("--locks all --vcpus 2x --seconds 0.3 --policy random {HARMLESS}")),
    mutexes_that_read_first_write_less => Quiet("ratio of writes per wait"),
    sums_of_counters_are_within_their_bounds,
    lockrefs_report_retries,
    the_reader_of_a_hot_line_reads,
    mixed_families_keep_their_promises,
    every_operation_is_timed => Quiet("two counts read one after the other, within 20 %"),
];

/// Returns the names of all locks in `pvticket locks`: indented by two, descriptions by more.
fn names() -> anyhow::Result<Vec<String>> {
    let ran = pvticket(["locks"]).run()?.exits(0)?;
    let lines = ran.text()?.lines().filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| !line.starts_with(' '));
    Ok(names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// Runs a comparison with these options.
fn compare(options: &str) -> anyhow::Result<Compared> {
    Compared::with_options(&format!("--host direct --runs 1 {options}"))
}

/// Returns the rows of the comparison's first level.
fn rows(options: &str) -> anyhow::Result<Vec<Value>> {
    let Compared { ran, results } = compare(options)?;
    let rows = results.levels()?.into_iter().next().with_context(|| ran.show())?;
    check_rows(&rows)?;
    Ok(rows)
}

/// Returns a figure of a row's work.
fn work(row: &Value, figure: &str) -> anyhow::Result<f64> {
    row["work"][figure].as_f64().with_context(|| format!("no {figure} in {row}"))
}

/// Checks that each lock is there, made progress, and kept exclusion and the order that it promises.
fn are_sound(options: &str) -> anyhow::Result<()> {
    let (names, levels) = (names()?, compare(options)?.results.levels()?);
    ensure!(!levels.is_empty(), "no levels");
    for rows in levels {
        let locks: Vec<_> = rows.iter().filter_map(|row| row["lock"].as_str()).collect();
        ensure!(locks == names, "{locks:?} are not {names:?}");
        check_rows(&rows)?;
    }
    Ok(())
}

fn mutexes_that_read_first_write_less() -> anyhow::Result<()> {
    let locks = "--locks mutex,mutex-read-first --set spin-threshold=100000";
    let rows = rows(&format!("{locks} --vcpus 2x --seconds 0.5"))?;
    let rmw_counts = [work(&rows[0], "rmw")?, work(&rows[1], "rmw")?];
    ensure!(rmw_counts.iter().all(|rmw| *rmw >= 1.999), "a take and a release: {rows:?}");
    // A wait that ends while spinning costs one more write, a wait that ends in a sleep at most three, and
    // each bypass of a waiter one.
    let (baseline, reads) = (work(&rows[0], "rmw_each_wait")?, work(&rows[1], "rmw_each_wait")?);
    expect_usually!(reads <= baseline.max(6.0), "it reads first and writes more: {rows:?}");
    Ok(())
}

fn sums_of_counters_are_within_their_bounds() -> anyhow::Result<()> {
    // Adds of 5 are less than a batch, so every CPU keeps a remainder.
    let options = "--locks counter-lock,counter-sequence,counter-gates --vcpus 4x --seconds 0.5 \
                   --set critical=5 --set sum-every=50";
    for row in rows(options)? {
        expect_usually!(work(&row, "sums")? > 0.0, "no vCPU summed: {row}");
        let is_exact = row["lock"] != "counter-sequence";
        ensure!(!is_exact || work(&row, "deviation")? == 0.0, "{row}");
    }
    Ok(())
}

fn lockrefs_report_retries() -> anyhow::Result<()> {
    let locks = "--locks lockref-unbounded,lockref-bounded,lockref-lock";
    let rows = rows(&format!("{locks} --vcpus 2x --seconds 0.3"))?;
    ensure!(work(&rows[1], "retries")? <= 100.0, "more than its bound: {}", rows[1]);
    ensure!(work(&rows[2], "retries")? == 0.0, "it has nothing to retry: {}", rows[2]);
    // The counts of slow and of all operations are read one after the other.
    let slow = rows[2]["slow"].as_f64().context("no share of slow operations")?;
    expect_usually!((slow - 1.0).abs() < 0.01, "not every operation took the lock: {}", rows[2]);
    Ok(())
}

fn the_reader_of_a_hot_line_reads() -> anyhow::Result<()> {
    let locks = "--locks pv-ticket,mutex,counter-lock,lockref-bounded";
    for row in rows(&format!("{locks} --vcpus 3 --seconds 0.3 --workload hot-line"))? {
        expect_usually!(work(&row, "looks")? > 0.0, "the reader never read: {row}");
    }
    Ok(())
}

fn mixed_families_keep_their_promises() -> anyhow::Result<()> {
    let locks = "--locks ticket,pv-queued,mutex-queued,counter-gates,lockref-lock";
    let rows = rows(&format!("{locks} --vcpus 2x --seconds 0.3 --workload mixed"))?;
    ensure!(rows.iter().all(|row| row["work"].is_null()), "unexpected work figures: {rows:?}");
    Ok(())
}

fn every_operation_is_timed() -> anyhow::Result<()> {
    let options = "--locks pv-ticket,lockref-bounded --vcpus 2x --seconds 0.3 --latency";
    let Compared { ran, results } = compare(options)?;
    ran.stdout_has(&["\n  -- pv-ticket\n  waits ", "\n  -- lockref-bounded\n  gets and puts "])?;
    let runs = results.runs()?;
    let rows = results.levels()?.concat();
    ensure!(rows.len() == 2, "not two locks: {rows:?}");
    for row in rows {
        let at = |name: &str| row["latencies"][name].as_u64().unwrap_or(0);
        let percentiles = ["p50", "p99", "p999", "max"].map(at);
        ensure!(percentiles.is_sorted(), "{row}");
        expect_usually!(percentiles[0] > 0, "no operation was timed: {row}");
        let run = runs.iter().find(|run| run["lock"] == row["lock"]).context("no run")?;
        let buckets = run["latencies"].as_array().context("no histogram")?;
        let timed: u64 = buckets.iter().filter_map(|bucket| bucket[1].as_u64()).sum();
        let done = operations(run);
        // The two are read one after the other.
        expect_usually!(timed.abs_diff(done) <= done / 5 + 1000, "{timed} timed, {done} done");
    }
    Ok(())
}
