//! Kernels with different spinlocks side by side: each workload runs under each of them.

use std::fs;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{files, product::pvticket, tests};

tests![
    mmap_under_every_kernel,
    open_read_close_under_every_kernel,
    every_kernel_excludes_under_overcommit,
    a_kernel_with_other_locks_is_found_out,
];

/// Every lock that a kernel has, each with all who can serve it.
const ALL: [(&str, &str); 7] = [
    ("ticket", "off"),
    ("pv-ticket", "vmm"),
    ("pv-ticket", "doorbell"),
    ("pv-ticket", "kvm"),
    ("test-and-set", "off"),
    ("queued", "off"),
    ("pv-queued", "kvm"),
];

/// One run of each, each in a machine of its own. Gives the rows.
fn compare(options: &[&str]) -> anyhow::Result<Vec<Value>> {
    files::cached(files::BUILT_STOCK)?;
    let folder = files::scratch()?;
    let json = folder.path().join("json");
    let words =
        ["compare", "--host", "direct", "--guest", "linux", "--locks", "all", "--runs", "1"];
    let program = pvticket(words).args(["--pv-backends", "vmm,doorbell,kvm"]).args(options);
    let ran = program.args(["--json"]).args([&json]).limit(300).run()?.exits(0)?;
    let result: Value = serde_json::from_slice(&fs::read(&json).with_context(|| ran.show())?)?;
    let rows = result["levels"][0]["rows"].as_array().with_context(|| ran.show())?.clone();
    let found =
        |row: &Value| Some((row["lock"].as_str()?.to_owned(), row["backend"].as_str()?.to_owned()));
    let found: Vec<_> = rows.iter().filter_map(found).collect();
    let expected = ALL.map(|(lock, backend)| (lock.to_owned(), backend.to_owned()));
    ensure!(found == expected, "{found:?} are not {expected:?}\n{}", ran.show());
    Ok(rows)
}

fn are_sound(rows: &[Value]) -> anyhow::Result<()> {
    for row in rows {
        ensure!(row["violations"] == 0, "mutual exclusion failed: {row}");
        ensure!(row["rate"]["min"].as_f64() > Some(0.0), "it did nothing: {row}");
    }
    Ok(())
}

fn mmap_under_every_kernel() -> anyhow::Result<()> {
    are_sound(&compare(&["--workload", "mmap", "--vcpus", "2", "--seconds", "0.3"])?)
}

fn open_read_close_under_every_kernel() -> anyhow::Result<()> {
    are_sound(&compare(&["--workload", "open-read-close", "--vcpus", "2", "--seconds", "0.3"])?)
}

/// The kernel's own benchmark, which looks for lost updates. Nobody halts but PV waiters.
fn every_kernel_excludes_under_overcommit() -> anyhow::Result<()> {
    let rows = compare(&["--vcpus", "2x", "--seconds", "0.5"])?;
    are_sound(&rows)?;
    for row in rows {
        let halts = row["halts"].as_f64().with_context(|| format!("no halts: {row}"))?;
        let is_pv = row["lock"].as_str().is_some_and(|lock| lock.starts_with("pv-"));
        ensure!(is_pv || halts == 0.0, "halts without PV: {row}");
    }
    Ok(())
}

/// Its locks are those of our kernel: that must not pass for a measurement of others.
fn a_kernel_with_other_locks_is_found_out() -> anyhow::Result<()> {
    let ours = files::cached(files::BUILT_KERNEL)?;
    let words = ["compare", "--host", "direct", "--guest", "linux", "--locks", "pv-queued"];
    let program = pvticket(words).args(["--vcpus", "2", "--seconds", "0.1", "--runs", "1"]);
    let ran = program.args(["--stock-kernel"]).args([&ours]).run()?.exits(1)?;
    ran.complains(&["the guest's locks are not pv-queued", "ticketlocks"]).map(drop)
}
