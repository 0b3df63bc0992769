//! Programs of the user as workloads.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::prelude::*;

tests![programs_are_compared, failures_of_programs_are_reported];

/// Prints its argument, as its rate, and to stderr, and ends with the status of the file next to it.
const SCRIPT: &str = "#!/bin/sh\necho \"rate = $1\"\necho \"about $1\" >&2\nexit $(cat status)\n";

fn compare(dir: &Path, status: &str, options: &[&str]) -> anyhow::Result<Program> {
    let script = dir.join("run");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    fs::write(dir.join("status"), status)?;
    let words =
        "compare --host direct --guest linux --locks pv-ticket --vcpus 2 --runs 1 --policy rr";
    Ok(pvticket(words.split(' ')).args(options))
}

/// The script runs in busybox's shell, in its directory; each program is a point with the rate that it prints.
fn programs_are_compared() -> anyhow::Result<()> {
    let dir = files::scratch()?;
    let run = dir.path().join("run").display().to_string();
    let programs = ["5.5", "700"].map(|rate| format!("--program={run} {rate}"));
    let options = [programs[0].as_str(), &programs[1], "--rate=rate = (.*)"];
    let Compared { ran, results } = Compared::new(compare(dir.path(), "0", &options)?)?;
    let rows = results.levels()?.concat();
    let mut rates: Vec<f64> = rows.iter().filter_map(|row| row["rate"]["min"].as_f64()).collect();
    rates.sort_by(f64::total_cmp);
    ensure!(rates == [5.5, 700.0], "{}", ran.show());
    ran.stdout_has(&["run 700"])
}

fn failures_of_programs_are_reported() -> anyhow::Result<()> {
    let dir = files::scratch()?;
    let run = dir.path().join("run").display().to_string();
    let program = format!("--program={run} x");
    for (status, reason) in [
        ("3", "run: exit status: 3: about x"),
        (
            "0",
            "the expression 'rate = (.*)' finds 'x' in the program's output, not a number above 0",
        ),
    ] {
        let options = [program.as_str(), "--rate=rate = (.*)"];
        compare(dir.path(), status, &options)?.run()?.exits(1)?.stderr_has(&[reason])?;
    }
    Ok(())
}
