//! The lock library: its list, and every lock of it in a machine.

use std::fs;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{files, host::need_kvm, product::pvticket, ran::Ran, tests};

tests![
    the_locks_are_listed,
    every_lock_keeps_its_promises_at_1x_and_2x,
    every_lock_bears_faults_and_random_preemption,
    a_small_ticketlock_refuses_more_cpus_than_it_counts,
    a_lock_that_is_none_is_named,
    a_lock_that_no_kernel_has_is_refused,
    a_kernel_that_is_missing_is_asked_for,
];

/// Names of all locks, as `pvticket locks` lists them: indented by two, their lines by more.
fn names() -> anyhow::Result<Vec<String>> {
    let ran = pvticket(["locks"]).run()?.exits(0)?;
    let lines = ran.text()?.lines().filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| !line.starts_with(' '));
    Ok(names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn the_locks_are_listed() -> anyhow::Result<()> {
    let names = names()?;
    for name in ["ticket", "pv-ticket", "small-pv-ticket", "test-and-set", "queued", "pv-queued"] {
        ensure!(names.iter().any(|listed| listed == name), "no {name} among {names:?}");
    }
    Ok(())
}

/// `compare --locks all` with these options: the rows of each level.
fn compare(options: &[&str]) -> anyhow::Result<Vec<Vec<Value>>> {
    let folder = files::scratch()?;
    let file = folder.path().join("json");
    let ran = pvticket(["compare", "--host", "direct", "--locks", "all", "--runs", "1", "--json"])
        .args([&file])
        .args(options)
        .run()?
        .exits(0)?;
    let report: Value = serde_json::from_slice(&fs::read(&file).with_context(|| ran.show())?)?;
    let levels = report["levels"].as_array().with_context(|| ran.show())?;
    let rows = levels.iter().map(|level| level["rows"].as_array().cloned().unwrap_or_default());
    Ok(rows.collect())
}

/// All are there, and each got on, excluded, and served in order if it says so.
fn are_sound(levels: &[Vec<Value>]) -> anyhow::Result<()> {
    let names = names()?;
    for rows in levels {
        let locks: Vec<_> = rows.iter().filter_map(|row| row["lock"].as_str()).collect();
        ensure!(locks == names, "{locks:?} are not {names:?}");
        for row in rows {
            ensure!(row["violations"] == 0 && row["disorder"] == 0, "{row}");
            ensure!(row["rate"]["min"].as_f64() > Some(0.0), "it did nothing: {row}");
        }
    }
    Ok(())
}

fn every_lock_keeps_its_promises_at_1x_and_2x() -> anyhow::Result<()> {
    need_kvm()?;
    let levels = compare(&["--vcpus", "1x,2x", "--seconds", "0.3"])?;
    ensure!(!levels.is_empty(), "no levels");
    are_sound(&levels)
}

fn every_lock_bears_faults_and_random_preemption() -> anyhow::Result<()> {
    need_kvm()?;
    let faults = "kick-delay:50us,kick-dup:0.1,spurious:0.1,halt-delay:50us";
    let options = ["--vcpus", "2x", "--seconds", "0.3", "--policy", "random", "--fault", faults];
    are_sound(&compare(&options)?)
}

fn a_small_ticketlock_refuses_more_cpus_than_it_counts() -> anyhow::Result<()> {
    for lock in ["small-ticket", "small-pv-ticket"] {
        let ran = pvticket(["compare", "--locks", lock, "--vcpus", "128"]).run()?;
        ran.fails(2, &["--vcpus 128", lock, "127 CPUs"])?;
    }
    Ok(())
}

fn a_lock_that_is_none_is_named() -> anyhow::Result<()> {
    pvticket(["compare", "--locks", "nope"])
        .run()?
        .fails(2, &["'nope'", "pvticket locks"])
        .map(drop)
}

/// `compare` of locks in Linux guests, with a cache in which nothing is built.
fn compare_kernels(options: &[&str]) -> anyhow::Result<Ran> {
    let cache = files::scratch()?;
    let program = pvticket(["compare", "--host", "emulated", "--guest", "linux"]).args(options);
    program.env("PVTICKET_CACHE", cache.path()).run()
}

fn a_lock_that_no_kernel_has_is_refused() -> anyhow::Result<()> {
    let ran = compare_kernels(&["--locks", "ticket,preemptable-ticket"])?;
    ran.fails(2, &["no kernel here has preemptable-ticket", "there are ticket, pv-ticket"])?;
    let ran = compare_kernels(&["--locks", "pv-queued", "--fault", "kick-dup:0.1"])?;
    ran.fails(2, &["--fault", "--locks pv-queued", "KVM serves"])?;
    let ran = compare_kernels(&["--locks", "queued", "--kernel", "/x"])?;
    ran.fails(2, &["--kernel", "--stock-kernel"])?;
    let ran = pvticket(["compare", "--stock-kernel", "/x"]).run()?;
    ran.fails(2, &["--stock-kernel is only for --guest linux"]).map(drop)
}

/// And only that one.
fn a_kernel_that_is_missing_is_asked_for() -> anyhow::Result<()> {
    compare_kernels(&["--locks", "queued"])?.fails(1, &["run `make kernel-stock`"])?;
    compare_kernels(&["--locks", "ticket"])?.fails(1, &["run `make kernel`"]).map(drop)
}
