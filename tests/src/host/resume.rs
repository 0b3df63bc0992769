//! Killed runs and damaged stores: repairs by `--resume`, and its errors.

use super::run::{Run, TWENTY, cells, check_twenty, lines, run_in, spec};
use crate::prelude::*;

kvm::tests![
    a_killed_run_is_resumed_without_loss: kill_and_resume(6),
    a_run_killed_fifty_times_is_resumed_without_loss: kill_and_resume(50) => Long("30 s: fifty kills"),
    a_torn_store_is_repaired_and_reported,
    a_killed_runs_trace_is_continued,
    the_status_reflects_the_store,
    failed_cells_are_measured_again_on_request,
];

/// Two short cells.
const TWO: &str = "vcpus = 1\nlocks = \"ticket\"\nrepetitions = 2\nseconds = 0.05\n";

/// Returns a duration up to `limit` from a linear congruential generator, seeded by the caller.
fn span(state: &mut u64, limit: Duration) -> Duration {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    limit.mul_f64((*state >> 40) as f64 / (1_u64 << 24) as f64)
}

/// Kills a run at random moments, `limit` times, and resumes it. Starts another run when it is complete.
fn kill_and_resume(limit: u32) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), TWENTY)?;
    let (mut state, mut kills, mut runs) = (20_121_117, 0, 0);
    while kills < limit {
        let dir = folder.path().join(format!("run-{runs}"));
        runs += 1;
        let begin = || pvticket(["run", "--dir"]).args([&dir, &spec]).start();
        let resume = || pvticket(["run", "--resume"]).args([&dir]).start();
        while kills < limit {
            let has_begun = lines(&dir).is_ok_and(|lines| !lines.is_empty());
            let _ = (!has_begun).then(|| fs::remove_dir_all(&dir));
            let running = if has_begun { resume()? } else { begin()? };
            if is_killed(running, span(&mut state, Duration::from_millis(1200)))? {
                kills += 1;
            } else {
                break;
            }
        }
        if lines(&dir).is_ok_and(|lines| !lines.is_empty()) {
            resume()?.wait()?.exits(0)?;
        } else {
            let _ = fs::remove_dir_all(&dir);
            begin()?.wait()?.exits(0)?;
        }
        check_twenty(&dir)?;
    }
    Ok(())
}

/// Kills a run after this time. Returns false if it had already ended successfully.
fn is_killed(running: Running, after: Duration) -> anyhow::Result<bool> {
    thread::sleep(after);
    // The run may have ended already.
    let _ = running.signal(Signal::KILL);
    let ran = running.wait()?;
    match ran.status() {
        Ok(_) => ran.exits(0).map(|_| false),
        Err(_) => Ok(true),
    }
}

fn a_torn_store_is_repaired_and_reported() -> anyhow::Result<()> {
    let Run { folder: _folder, dir, .. } = Run::new(TWENTY, &[])?;
    let store = dir.join("cells.jsonl");
    let bytes = fs::read(&store)?;
    fs::write(&store, &bytes[..bytes.len() - 100])?;
    let ran = pvticket(["run", "--resume"]).args([&dir]).run()?.exits(0)?;
    ensure!(ran.errors().contains("was incomplete"), "{}", ran.show());
    check_twenty(&dir)?;
    // A kill damages only the end of a store, so damage in the middle is an error.
    let text = fs::read_to_string(&store)?.replacen("\"kind\":\"cell\"", "\"kind\":\"sell\"", 1);
    fs::write(&store, text)?;
    pvticket(["run", "--resume"]).args([&dir]).run()?.fails(1, &["damaged in line 3"])?;
    Ok(())
}

/// States after a kill: a trace cut off within a run, and a run whose cell did not reach the store.
fn a_killed_runs_trace_is_continued() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let [trace, store] = ["trace", "run/cells.jsonl"].map(|name| folder.path().join(name));
    let text = "vcpus = [2, 3, 4]\nlocks = \"pv-ticket\"\nrepetitions = 1\nseconds = 0.1\n";
    let (run, dir) = run_in(&folder, text, &[])?;
    let traced = |run: Program| run.args(["--trace".into(), trace.clone()]);
    traced(run).run()?.exits(0)?;
    let run_count = |status: &str| -> anyhow::Result<usize> {
        let ran = pvticket(["trace", "--json"]).args([&trace]).run()?.exits(0)?;
        let digest = ran.json()?;
        let is_cut = !digest["cut_off_at"].is_null();
        ensure!(is_cut == (status == "cut off"), "{status}: {digest:#}");
        Ok(digest["runs"].as_array().with_context(|| ran.show())?.len())
    };
    ensure!(run_count("whole")? == 3);
    for cut in [0, 7] {
        let lines = fs::read_to_string(&store)?;
        let (head, _) = lines.trim_end().rsplit_once('\n').context("one line")?;
        fs::write(&store, format!("{head}\n"))?;
        let bytes = fs::read(&trace)?;
        fs::write(&trace, &bytes[..bytes.len() - cut])?;
        if cut > 0 {
            ensure!(run_count("cut off")? == 2);
            let ran = pvticket(["trace"]).args([&trace]).run()?.exits(0)?;
            ran.stdout_has(&["The file is truncated at byte"])?;
        }
        traced(pvticket(["run", "--resume"]).args([&dir])).run()?.exits(0)?;
        ensure!(run_count("whole")? == 3, "cut by {cut}");
    }
    // A file that is not a trace is left unchanged.
    let before = fs::read(&store)?;
    let foreign = files::put(&folder, "other", b"not a timeline")?;
    let run = pvticket(["run", "--resume"]).args([&dir]).args(["--trace".into(), foreign.clone()]);
    run.run()?.fails(1, &["--trace", "not a pvticket trace"])?;
    ensure!(fs::read(&foreign)? == b"not a timeline" && fs::read(&store)? == before);
    Ok(())
}

/// Creates a store of two cells on one vCPU, whose last line `change` edits.
fn changed_store(
    folder: &Path,
    name: &str,
    change: impl Fn(&mut Value),
) -> anyhow::Result<PathBuf> {
    let (original, dir) = (folder.join("whole"), folder.join(name));
    if !original.exists() {
        pvticket(["run", "--dir"]).args([&original, &spec(folder, TWO)?]).run()?.exits(0)?;
    }
    let mut lines = lines(&original)?;
    change(lines.last_mut().context("no line")?);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::create_dir(&dir)?;
    fs::write(dir.join("cells.jsonl"), text)?;
    Ok(dir)
}

fn fail(cell: &mut Value) {
    (cell["status"], cell["error"]) = ("failed".into(), "it died".into());
    cell["figures"] = Value::Null;
}

fn break_lock(cell: &mut Value) {
    cell["figures"]["violations"] = 1.into();
}

/// Regression (T2): `run --resume` exited with 0 despite BROKEN or failed cells of an earlier session.
fn the_status_reflects_the_store() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let page = folder.path().join("page.html").display().to_string();
    let commands: [&[&str]; 7] = [
        &["run", "--resume"],
        &["compare", "--resume"],
        &["run", "--retry", "failed", "--resume"],
        &["report"],
        &["report", "--brief"],
        &["report", "--text"],
        &["report", "--html", &page],
    ];
    type Change = fn(&mut Value);
    let states: [(&str, Change, bool, i32); 5] = [
        ("whole", |_| {}, true, 0),
        ("aborted", |cell| cell["status"] = "aborted".into(), true, 0),
        ("without-seconds", |cell| cell["figures"]["seconds"] = 0.0.into(), false, 1),
        ("failed", fail, false, 1),
        ("broken", break_lock, true, 1),
    ];
    for (ix, words) in commands.into_iter().enumerate() {
        for (state, change, keeps, status) in states {
            let dir = changed_store(folder.path(), &format!("{state}-{ix}"), change)?;
            let ran = pvticket(words).args([&dir]).run()?;
            // Failed cells are measured again on request, BROKEN ones never.
            let status = if words.contains(&"--retry") && !keeps { 0 } else { status };
            ensure!(ran.status()? == status, "{words:?} {state}: not {status}\n{}", ran.show());
            let lines = ran.errors().lines().filter(|line| line.starts_with("pvticket: ")).count();
            ensure!(status == 0 || lines > 0, "{words:?} {state}: no line\n{}", ran.show());
        }
    }
    Ok(())
}

fn failed_cells_are_measured_again_on_request() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    for (change, more) in [(fail as fn(&mut Value), 1), (break_lock, 0)] {
        let dir = changed_store(folder.path(), &more.to_string(), change)?;
        let before = cells(&dir)?;
        let retry = || pvticket(["run", "--retry", "failed", "--resume"]).args([&dir]).run();
        let ran = retry()?.exits(1 - more)?;
        let after = cells(&dir)?;
        // The store keeps the failed cell, and its successor counts.
        ensure!(after.len() == before.len() + more as usize, "{after:?}\n{}", ran.show());
        ensure!(after[..before.len()] == before, "{after:?}");
        ensure!(more == 0 || after[2]["status"] == "done", "{after:?}");
        retry()?.exits(1 - more)?;
        ensure!(cells(&dir)?.len() == after.len(), "measured once more");
    }
    Ok(())
}
