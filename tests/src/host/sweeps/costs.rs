//! What a sweep costs beside its cells: `make e2e FILTER=sweeps::costs TEST_ARGS=--bench`.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::ensure;
use serde_json::Value;

use super::{check_divided, cluster::User, plain, slurm::Kit, spec, whole_parts};
use crate::{files, product::pvticket, tests};

tests![a_thousand_cells_with_kills_and_without];

/// How many cells a unit has, and how many units there are.
const CELLS: &str = "10";
const UNITS: usize = 100;

/// A thousand cells, in ten rounds, of a few milliseconds each.
fn thousand() -> String {
    let seeds: Vec<String> = (1..=25).map(|seed: u32| seed.to_string()).collect();
    format!(
        "name = \"thousand\"\nguests = \"sim\"\nmachines = \"westmere-80\"\nslots = 2\n\
         vcpus = [\"1x\", \"2x\"]\nlocks = [\"ticket\", \"pv-ticket\"]\npolicies = \"rr\"\n\
         seconds = 0.002\nwarm-up = 0.001\nrepetitions = 10\nseeds = [{}]\n",
        seeds.join(", ")
    )
}

/// Time in the cells that count and in those of interrupted attempts.
fn in_cells(dir: &Path) -> anyhow::Result<Duration> {
    let mut seconds = 0.0;
    for part in fs::read_dir(dir.join("parts"))? {
        for line in fs::read_to_string(part?.path())?.lines() {
            // The last line of a task that was killed may be torn.
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            seconds += line["took"].as_f64().unwrap_or(0.0);
        }
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A row of the table. Every unit is there once, and the cells are those of a plain run.
fn row(name: &str, dir: &Path, submissions: u32, took: Duration) -> anyhow::Result<String> {
    let parts = fs::read_dir(dir.join("parts"))?.count();
    ensure!(whole_parts(dir) >= UNITS, "{} whole units", whole_parts(dir));
    Ok(format!(
        "  {name:<22}{submissions:>6}{parts:>10}{:>9.1}{:>9.0}{:>11.1}",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 / UNITS as f64,
        in_cells(dir)?.as_secs_f64(),
    ))
}

fn a_thousand_cells_with_kills_and_without() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &thousand())?;
    let local = folder.path().join("local");
    let options = ["--unit-cells", CELLS];
    let plain = plain(folder.path(), &spec)?;
    let began = Instant::now();
    let run = pvticket(["run", "--on", "local"]).limit(600).args(options).args(["--dir"]);
    run.args([&local, &spec]).run()?.exits(0)?;
    let took = began.elapsed();
    check_divided(&local, &plain)?;
    let mut table = vec![row("--on local", &local, 1, took)?];
    for kills in [0, 20] {
        let kit = Kit::new(3, User::Own, &thousand())?;
        let began = Instant::now();
        let submissions = kit.run_and_kill(&options, kills)?;
        let took = began.elapsed();
        check_divided(&kit.dir, &plain)?;
        table.push(row(&format!("--on slurm, {kills} kills"), &kit.dir, submissions, took)?);
    }
    println!(
        "\n1000 simulated cells in {UNITS} units; Slurm has three nodes of two CPUs here\n  \
         {:<22}{:>6}{:>10}{:>9}{:>9}{:>11}",
        "", "jobs", "attempts", "total s", "ms/unit", "in cells s"
    );
    table.iter().for_each(|row| println!("{row}"));
    Ok(())
}
