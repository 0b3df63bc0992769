//! `pgbench-table`: PostgreSQL in a Linux guest, with native and PV ticketlocks in turn.

use std::fs;

use anyhow::{Context, ensure};

use crate::{
    expect_usually, files,
    product::{Boot, pvticket},
    ran::Ran,
    suite::skip,
    tests,
};

tests![
    a_table_in_the_form_of_2012 => Long("35 s of PostgreSQL"),
    every_run_is_in_the_json => Long("16 s of PostgreSQL"),
    bad_words_are_refused,
    a_guest_without_pv_is_refused,
    too_little_memory_is_refused,
    a_missing_guest_disk_is_named,
];

/// A boot with PostgreSQL and two CPUs; skips the test if there is no guest disk.
fn boot(words: &[&str]) -> anyhow::Result<Boot> {
    if files::cached(files::GUEST_DISK).is_err() {
        return skip("no guest disk with PostgreSQL (pvticket setup guest-disk)");
    }
    Ok(Boot::direct().cpus(2).command([&["pgbench-table"], words].concat()))
}

/// The rows of numbers between the line that starts with `heading` and the next line that does not
/// start with a number.
fn rows(text: &str, heading: &str) -> Vec<Vec<f64>> {
    let number = |word: &str| word.parse::<f64>().ok();
    let numbers = |line: &str| line.split_whitespace().map_while(number).collect::<Vec<_>>();
    text.lines()
        .skip_while(|line| !line.starts_with(heading))
        .skip(1)
        .filter(|line| !line.starts_with(['-', '=', '~']) && !line.contains("Client"))
        .map(numbers)
        .take_while(|row| !row.is_empty())
        .collect()
}

fn check_blocks(ran: &Ran) -> anyhow::Result<()> {
    let text = ran.text()?;
    for title in ["native:", "PV, no halts:", "PV: PV on"] {
        let rows = rows(text, title);
        ensure!(rows.len() == 2, "{title}: {rows:?}\n{}", ran.show());
        for row in &rows {
            let [client, runs, min, max, median, average, stddev] = row[..] else {
                anyhow::bail!("{title}: {row:?}\n{}", ran.show());
            };
            ensure!((client, runs) == (2.0, 2.0), "{title}: {row:?}\n{}", ran.show());
            expect_usually!(0.0 < min, "{title}: no transaction: {row:?}");
            ensure!(min <= median && median <= max, "{title}: {row:?}");
            ensure!(min <= average && average <= max && stddev >= 0.0, "{title}: {row:?}");
        }
    }
    Ok(())
}

fn a_table_in_the_form_of_2012() -> anyhow::Result<()> {
    let words = ["--scales", "1,2", "--clients", "2", "--runs", "2", "--seconds", "1"];
    let ran = boot(&words)?.run()?.exits(0)?;
    check_blocks(&ran)?;
    let summary = rows(ran.text()?, "Summary of Avg");
    ensure!(summary.len() == 2, "{summary:?}\n{}", ran.show());
    ensure!(
        summary.iter().all(|row| row.len() == 3 && row[1] > 0.0 && row[2] > 0.0),
        "{summary:?}"
    );
    ran.shows(&["2 CPUs", "backend vmm", "PostgreSQL ", "SELECT only", "steal ", "%improve"])?;
    ensure!(ran.errors().contains("round 2 of 2: scale 2, 2 clients, "), "{}", ran.show());
    Ok(())
}

fn every_run_is_in_the_json() -> anyhow::Result<()> {
    let words = ["--json", "--scales=1", "--clients=3", "--runs=1", "--seconds=1"];
    let ran = boot(&words)?.pv("doorbell").run()?.exits(0)?;
    let json = ran.json()?;
    ensure!(json["backend"] == "doorbell" && json["cpus"] == 2, "{json:#}");
    let rows = json["rows"].as_array().context("no rows")?;
    for (row, configuration) in rows.iter().zip(["native", "no_halts", "pv"]) {
        ensure!(row["configuration"] == configuration && row["clients"] == 3, "{json:#}");
        let tps = row["tps"].as_array().context("no runs")?;
        ensure!(tps.len() == 1, "{json:#}");
        expect_usually!(tps[0].as_f64() > Some(0.0), "no transaction: {json:#}");
        ensure!(row["stddev"].is_null() && row["average"] == tps[0], "{json:#}");
    }
    ensure!(rows.len() == 3, "{json:#}");
    let halts = [0, 1].map(|ix| json["totals"][ix]["halts"].as_u64());
    ensure!(halts == [Some(0); 2], "who may not halt did: {json:#}");
    Ok(())
}

fn bad_words_are_refused() -> anyhow::Result<()> {
    let ran = boot(&["--fast"])?.run()?.exits(2)?;
    ran.complains(&["pgbench-table: ", "--fast", "pgbench-table --help"]).map(drop)
}

fn a_guest_without_pv_is_refused() -> anyhow::Result<()> {
    let ran = boot(&["--small"])?.pv("off").run()?.exits(2)?;
    ran.complains(&["booted without PV ticketlocks", "--pv vmm"]).map(drop)
}

fn too_little_memory_is_refused() -> anyhow::Result<()> {
    let ran = boot(&["--scales", "100"])?.run()?.exits(2)?;
    ran.complains(&["need more memory: boot with --mem", "--scales"]).map(drop)
}

fn a_missing_guest_disk_is_named() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let cache = folder.path().join("cache");
    fs::create_dir(&cache)?;
    let program = pvticket(["boot", "--dry-run", "--", "pgbench-table"]);
    let ran = program.env("PVTICKET_CACHE", &cache).run()?;
    ran.fails(1, &["no guest disk", "pvticket setup guest-disk"]).map(drop)
}
