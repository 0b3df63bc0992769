//! The workload `pgbench`: PostgreSQL in a Linux guest.

use super::workloads::is_compared;
use crate::prelude::*;

tests![
    transactions_are_the_operations => Long("25 s of PostgreSQL"),
    native_and_pv_ticketlocks_are_compared: needs_disk().and_then(|()| is_compared("pgbench", "1")) => Long("40 s of PostgreSQL"),
    the_published_table_is_a_built_in_spec,
    a_guest_without_postgresql_is_reported,
    too_little_memory_is_refused,
    a_missing_guest_disk_is_named,
];

/// Skips the test without a guest disk.
fn needs_disk() -> anyhow::Result<()> {
    match files::cached(files::GUEST_DISK) {
        Ok(_) => Ok(()),
        Err(_) => skip("no guest disk with PostgreSQL (pvticket setup guest-disk)"),
    }
}

fn transactions_are_the_operations() -> anyhow::Result<()> {
    needs_disk()?;
    let words = ["bench", "pgbench", "--workers", "3", "--seconds", "1", "--json"];
    let ran = Boot::direct().with("--cpus 2").command(words).run()?.exits(0)?;
    let result: Value = serde_json::from_str(ran.text()?).with_context(|| ran.show())?;
    ensure!(result["bench"] == "pgbench" && result["cpus"] == 2, "{result}");
    ensure!(result["operations"].as_array().map(Vec::len) == Some(1), "{result}");
    expect_usually!(result["operations"][0].as_u64() > Some(0), "no transaction: {result}");
    ensure!(result["seconds"].as_f64() > Some(0.9), "{result}");
    ensure!(result["stats"]["backend"] == "vmm", "{result}");
    ensure!(result["steal_seconds"].is_number(), "{result}");
    Ok(())
}

fn the_published_table_is_a_built_in_spec() -> anyhow::Result<()> {
    let ran = pvticket(["run", "pgbench", "--dry-run"]).run()?.exits(0)?;
    ran.stdout_has(&[
        "10 x linux 6.12 pgbench:1, ticket",
        "10 x linux 6.12 pgbench:64/10, pv-ticket",
        "56 points",
    ])
}

/// A script may run any commands: the guest disk is added only for `bench pgbench`.
fn a_guest_without_postgresql_is_reported() -> anyhow::Result<()> {
    let ran = Boot::direct().script("bench pgbench --scale 0; bench pgbench").run()?.exits(1)?;
    ran.stderr_has(&["--scale '0'", "there is no PostgreSQL in this guest", "setup guest-disk"])?;
    Ok(())
}

fn too_little_memory_is_refused() -> anyhow::Result<()> {
    needs_disk()?;
    let words = ["boot", "--dry-run", "--mem", "100M", "--", "bench", "pgbench"];
    pvticket(words).run()?.fails(2, &["--mem 100 MiB: must be at least"]).map(drop)
}

fn a_missing_guest_disk_is_named() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let cache = folder.path().join("cache");
    fs::create_dir(&cache)?;
    let program = pvticket(["boot", "--dry-run", "--", "bench", "pgbench"]);
    let ran = program.env("PVTICKET_CACHE", &cache).run()?;
    ran.fails(1, &["no guest disk", "pvticket setup guest-disk"]).map(drop)
}
