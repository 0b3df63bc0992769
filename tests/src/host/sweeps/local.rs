//! Sweeps in child processes, and under GNU parallel.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::ensure;
use rustix::process::Signal;

use super::{check, plain, random, resume, rounds, spec, whole_parts};
use crate::{
    files,
    process::Program,
    product::{self, pvticket},
    suite::skip,
    tests,
};

tests![
    child_processes_give_the_cells_of_a_plain_run,
    a_sweep_is_killed_at_random_moments_and_resumed,
    ctrl_c_ends_a_sweep_of_child_processes_in_order,
    parallel_runs_what_is_missing,
    a_sweep_with_a_failed_cell_ends_with_its_status,
];

/// (T2): however its tasks are started, and when it is resumed.
fn a_sweep_with_a_failed_cell_ends_with_its_status() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    // The machine has 80 CPUs: the cell with 100 slots fails.
    let text = "guests = \"sim\"\nmachines = \"westmere-80\"\nslots = [2, 100]\nvcpus = 2\nlocks = \"ticket\"\n\
                repetitions = 1\nseconds = 0.001\n";
    let spec = spec(folder.path(), text)?;
    let dir = folder.path().join("sweep");
    let told = ["1 cell failed"];
    let run = pvticket(["run", "--on", "local", "--dir"]).args([&dir, &spec]).run()?;
    run.exits(1)?.complains(&told)?;
    resume(&dir).run()?.exits(1)?.complains(&told)?;
    resume(&dir).args(["--on", "manual"]).run()?.exits(1)?.complains(&told)?;
    resume(&dir).args(["--retry", "failed"]).run()?.fails(2, &["--retry: the units of a sweep"])?;
    pvticket(["report"]).args([&dir]).run()?.fails(1, &told)?;
    let plain = pvticket(["run", "--dir"]).args([&folder.path().join("plain"), &spec]).run()?;
    plain.exits(1)?.complains(&told).map(drop)
}

fn child_processes_give_the_cells_of_a_plain_run() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.005, 5))?;
    let dir = folder.path().join("sweep");
    let ran = pvticket(["run", "--on", "local", "--dir"]).args([&dir, &spec]).run()?.exits(0)?;
    ensure!(ran.errors().contains("unit 4 is done"), "{}", ran.show());
    check(&dir, &plain(folder.path(), &spec)?)?;
    let status = pvticket(["status"]).args([&dir]).run()?.exits(0)?;
    let top = pvticket(["top"]).args([&dir]).run()?.exits(0)?;
    ensure!(status.text()? == top.text()?, "{}", top.show());
    ensure!(status.text()?.contains("20/20 cells; units: 5/5 done"), "{}", status.show());
    // A whole sweep is resumed by its report.
    let again = resume(&dir).run()?.exits(0)?;
    ensure!(!again.errors().contains("submitted"), "{}", again.show());
    // What one task wrote, and no other program.
    let part = dir.join("parts").join(first_part(&dir)?);
    let text = fs::read_to_string(&part)?;
    fs::write(&part, text.replacen("\"took\":", "\"took\":1", 1))?;
    let status = pvticket(["status"]).args([&dir]).run()?.exits(0)?;
    ensure!(
        status.text()?.contains("is damaged in line 6: its checksum differs"),
        "{}",
        status.show()
    );
    let again = resume(&dir).run()?.exits(0)?;
    ensure!(again.errors().contains("1 unit submitted"), "{}", again.show());
    check(&dir, &plain(folder.path(), &spec)?).map(drop)
}

fn first_part(dir: &Path) -> anyhow::Result<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(dir.join("parts"))?.flatten().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    Ok(names.swap_remove(0))
}

/// The head is killed; its tasks end with it. At last no cell is lost, and none is there twice.
fn a_sweep_is_killed_at_random_moments_and_resumed() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.01, 6))?;
    let plain = plain(folder.path(), &spec)?;
    let dir = folder.path().join("sweep");
    let (mut state, mut kills) = (20_121_117, 0);
    let mut running = pvticket(["run", "--on", "local", "--dir"]).args([&dir, &spec]).start()?;
    loop {
        thread::sleep(Duration::from_millis(100 + random(&mut state, 700) as u64));
        if kills == 6 {
            running.wait()?.exits(0)?;
            break;
        }
        // The head may have ended already.
        let _ = running.signal(Signal::KILL);
        let _ = running.wait()?;
        kills += 1;
        running = if dir.join("cells.jsonl").exists() {
            resume(&dir).start()?
        } else {
            pvticket(["run", "--on", "local", "--dir"]).args([&dir, &spec]).start()?
        };
    }
    check(&dir, &plain).map(drop)
}

fn ctrl_c_ends_a_sweep_of_child_processes_in_order() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.05, 6))?;
    let dir = folder.path().join("sweep");
    let mut running = pvticket(["run", "--on", "local", "--dir"]).args([&dir, &spec]).start()?;
    running.wait_until("a cell", || {
        let parts = fs::read_dir(dir.join("parts")).into_iter().flatten().flatten();
        let mut text = parts.map(|part| fs::read_to_string(part.path()).unwrap_or_default());
        text.any(|text| text.contains("\"kind\":\"cell\""))
    })?;
    running.signal(Signal::INT)?;
    let ran = running.wait()?.exits(130)?;
    let resumed = "are left; resume with: pvticket run --resume";
    ensure!(ran.errors().contains(resumed), "{}", ran.show());
    let status = pvticket(["status"]).args([&dir]).run()?.exits(0)?;
    ensure!(status.text()?.contains("of attempts that are not whole"), "{}", status.show());
    resume(&dir).run()?.exits(0)?;
    check(&dir, &plain(folder.path(), &spec)?).map(drop)
}

/// The example of the guide.
fn parallel_runs_what_is_missing() -> anyhow::Result<()> {
    if Program::new("parallel").args(["--version"]).run().is_err() {
        return skip("there is no GNU parallel here (make setup installs it on Debian)");
    }
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.005, 4))?;
    let dir = folder.path().join("sweep");
    let plan = pvticket(["run", "--on", "manual", "--node-cpus", "1", "--dir"]);
    let ran = plan.args([&dir, &spec]).run()?.exits(0)?;
    ensure!(ran.text()?.contains("4 units are to be run: 0-3"), "{}", ran.show());
    pvticket(["task", "--unit", "2"]).args([&dir]).run()?.exits(0)?;
    ensure!(whole_parts(&dir) == 1, "one unit is done");
    let script = "\"$1\" status \"$2\" --missing | parallel -j2 \"$1\" task \"$2\" --unit {}";
    let missing = Program::new("sh").args(["-c", script, "sh"]).args([product::binary(), &dir]);
    missing.env("HOME", folder.path()).run()?.exits(0)?;
    check(&dir, &plain(folder.path(), &spec)?)?;
    ensure!(whole_parts(&dir) == 4, "no unit was run twice");
    // Done already: a scheduler may start it again.
    let again = pvticket(["task", "--unit", "2"]).args([&dir]).run()?.exits(0)?;
    ensure!(again.errors().contains("unit 2 is done already"), "{}", again.show());
    ensure!(whole_parts(&dir) == 4, "it was not run again");
    pvticket(["report"]).args([&dir]).run()?.exits(0).map(drop)
}
