//! A comparison of kernels with different spinlocks: each workload under each kernel.

use crate::{prelude::*, product::check_rows};

tests![
    mmap_under_every_kernel: check_rows(&compare_all(&["--workload", "mmap", "--vcpus", "2", "--seconds", "0.3"])?) => Long("15 s: both guest kernels, all locks"),
    open_read_close_under_every_kernel: check_rows(&compare_all(&["--workload", "open-read-close", "--vcpus", "2", "--seconds", "0.3"])?) => Long("15 s: both guest kernels, all locks"),
    every_kernel_excludes_under_overcommit => Long("15 s: both guest kernels, all locks"),
    preemptions_in_queued_locks_are_classified => Long("40 s: a comparison of both guest kernels"),
    a_kernel_with_other_locks_is_rejected,
    an_unpatched_kernel_has_rates,
];

/// Every lock of every kernel, with all backends that can serve it.
const ALL: [(&str, &str); 7] = [
    ("ticket", "off"),
    ("pv-ticket", "vmm"),
    ("pv-ticket", "doorbell"),
    ("pv-ticket", "kvm"),
    ("test-and-set", "off"),
    ("queued", "off"),
    ("pv-queued", "kvm"),
];

/// Runs each lock once, on a fresh VM. Returns the rows.
fn compare_all(options: &[&str]) -> anyhow::Result<Vec<Value>> {
    let rows =
        compare(&[&["--locks", "all", "--pv-backends", "vmm,doorbell,kvm"], options].concat())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut actual: Vec<_> =
        rows.iter().map(|row| (text(&row["lock"]), text(&row["backend"]))).collect();
    let mut expected = ALL.map(|(lock, backend)| (lock.to_owned(), backend.to_owned()));
    actual.sort();
    expected.sort();
    ensure!(actual == expected, "{actual:?} are not {expected:?}");
    Ok(rows)
}

/// Returns the rows of the first level.
fn compare(options: &[&str]) -> anyhow::Result<Vec<Value>> {
    files::cached(files::BUILT_STOCK)?;
    let words = ["compare", "--host", "direct", "--guest", "linux", "--runs", "1"];
    let Compared { ran, results } = Compared::new(pvticket(words).args(options).limit(300))?;
    results.levels()?.into_iter().next().with_context(|| ran.show())
}

/// The kernel's own benchmark, which checks for lost updates. Only PV waiters halt.
fn every_kernel_excludes_under_overcommit() -> anyhow::Result<()> {
    let rows = compare_all(&["--vcpus", "2x", "--seconds", "0.5"])?;
    check_rows(&rows)?;
    for row in rows {
        let halts = row["halts"].as_f64().with_context(|| format!("no halts: {row}"))?;
        let is_pv = row["lock"].as_str().is_some_and(|lock| lock.starts_with("pv-"));
        ensure!(is_pv || halts == 0.0, "halts without PV: {row}");
    }
    Ok(())
}

/// With mainline's queued locks, native and PV, the schedule's account is as complete as with ticketlocks.
fn preemptions_in_queued_locks_are_classified() -> anyhow::Result<()> {
    let options = ["--locks", "ticket,queued,pv-queued", "--policy", "rr", "--vcpus", "2x"];
    let rows = compare(&[&options[..], &["--seconds", "0.5"]].concat())?;
    ensure!(rows.len() == 3, "{rows:?}");
    for row in rows {
        let schedule = &row["schedule"];
        ensure!(schedule.is_object(), "no account: {row}");
        let [lhp, lwp] = ["lhp", "lwp"].map(|name| schedule[name].as_f64().unwrap_or(f64::NAN));
        // FIFO locks are taken some 150 times a second, for microseconds: usually the next waiter is
        // preempted, and a holder less than once in half a second.
        let is_classified = if row["lock"] == "pv-queued" { lhp > 0.0 } else { lhp + lwp > 0.0 };
        expect_usually!(is_classified, "no holder and no next waiter was preempted: {row}");
    }
    Ok(())
}

/// Our kernel has ticketlocks, which must not pass for other locks in a measurement.
fn a_kernel_with_other_locks_is_rejected() -> anyhow::Result<()> {
    let kernel = files::cached(files::BUILT_KERNEL)?;
    let words = ["compare", "--host", "direct", "--guest", "linux", "--locks", "pv-queued"];
    let program = pvticket(words).args(["--vcpus", "2", "--seconds", "0.1", "--runs", "1"]);
    let ran = program.args(["--guest-kernel"]).args([&kernel]).run()?.exits(1)?;
    ran.stderr_has(&["the guest's locks are not pv-queued", "ticketlocks"]).map(drop)
}

/// Debian's kernel, by the name of its file: rates from its user space, and dashes for counts that it does not have. A
/// kernel without the requested workload costs one cell.
fn an_unpatched_kernel_has_rates() -> anyhow::Result<()> {
    let debian = format!("debian={}", files::cached(files::STOCK_KERNEL)?.display());
    let options = "--host direct --guest linux --policy rr --vcpus 2x --seconds 0.3 --guest-kernel";
    let compare = |more: &str| {
        let program = pvticket(["compare"]).args(options.split(' ')).args([&debian]);
        program.args(more.split(' ')).limit(300)
    };
    let run = Compared::new(compare("--runs 1"))?.run()?;
    ensure!(run["halts_uncounted"] == true && operations(&run) > 0, "{run}");
    let ran = compare("--runs 3 --workload lock").run()?.exits(1)?;
    let failures = String::from_utf8_lossy(&ran.stderr).matches("failed: ").count();
    ensure!(failures == 1, "{failures} failures: {}", ran.show());
    Ok(())
}
