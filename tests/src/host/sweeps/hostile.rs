//! Directories of sweeps that others have changed.

use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{refused::prepared, resume, rounds, spec};
use crate::{
    files,
    process::Program,
    product::{self, pvticket},
    tests,
};

tests![
    numbers_that_overflow_are_refused,
    nothing_is_appended_to_through_a_link,
    a_slurm_log_has_a_directory_of_its_own,
    a_name_that_is_no_text_is_refused_when_resumed,
];

/// A prepared sweep of simulated cells, in a folder of this name.
fn simulated(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let dir = folder.join(name);
    let plan = ["run", "--on", "manual", "--node-cpus", "1", "--dir"];
    pvticket(plan).args([&dir, &spec(folder, &rounds(0.005, 2))?]).run()?.exits(0)?;
    Ok(dir)
}

/// Changes both lines of a sweep's head.
fn change(dir: &Path, change: impl Fn(&mut [Value; 2])) -> anyhow::Result<()> {
    let store = dir.join("cells.jsonl");
    let text = fs::read_to_string(&store)?;
    let (first, second) = text.trim_end().split_once('\n').context("two lines")?;
    let mut lines = [serde_json::from_str(first)?, serde_json::from_str(second)?];
    change(&mut lines);
    let [first, second] = lines;
    Ok(fs::write(store, format!("{first}\n{second}\n"))?)
}

/// Regression: both ended the program by an overflow, with status 134.
fn numbers_that_overflow_are_refused() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = prepared(folder.path(), "1")?;
    let text = fs::read_to_string(dir.join("cells.jsonl"))?;
    let second: Value = serde_json::from_str(text.lines().nth(1).context("no second line")?)?;
    let id = second["id"].as_str().context("no id")?;
    let place = dir.join(format!("submissions/{}", u32::MAX));
    fs::create_dir(&place)?;
    let submission = serde_json::json!({
        "number": u32::MAX, "engine": "slurm", "options": "", "name": format!("{id}-{}", u32::MAX),
        "units": [], "at_ms": 0, "job": null,
    });
    fs::write(place.join("submission.json"), submission.to_string())?;
    let ran = resume(&dir).args(["--on", "local"]).run()?;
    ran.fails(1, &["the last submission has the highest number; start the sweep anew"])?;
    fs::rename(&place, dir.join("submissions/0"))?;
    let ran = resume(&dir).args(["--on", "local"]).run()?;
    ran.fails(1, &["0/submission.json: it says that it is submission 4294967295"])?;
    change(&dir, |[run, sweep]| {
        run["cells"] = 0.into();
        sweep["units"] = Value::Array(Vec::new());
    })?;
    pvticket(["task", "--unit", "0"]).args([&dir]).run()?.fails(2, &["has no units"]).map(drop)
}

/// Regression: a store that is a link was cut and appended to, tasks wrote their parts into whatever folder a link led to, and
/// the program could be one, to be changed later.
fn nothing_is_appended_to_through_a_link() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = simulated(folder.path(), "sweep")?;
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere)?;
    fs::remove_dir(dir.join("parts"))?;
    symlink(&elsewhere, dir.join("parts"))?;
    let ran = pvticket(["task", "--unit", "0"]).args([&dir]).run()?;
    ran.fails(1, &["cannot open", "parts"])?;
    ensure!(fs::read_dir(&elsewhere)?.count() == 0, "a part was written there");
    fs::remove_file(dir.join("parts"))?;
    let (program, moved) = (dir.join("bin/pvticket"), folder.path().join("moved"));
    fs::rename(&program, &moved)?;
    symlink(&moved, &program)?;
    resume(&dir)
        .args(["--on", "local"])
        .run()?
        .fails(2, &["bin/pvticket is not a regular file"])?;
    fs::rename(&moved, &program)?;
    let (store, theirs) = (dir.join("cells.jsonl"), folder.path().join("theirs.jsonl"));
    fs::rename(&store, &theirs)?;
    // A torn line, which would be cut off.
    fs::write(&theirs, [&fs::read(&theirs)?[..], b"{\"torn"].concat())?;
    let before = fs::read(&theirs)?;
    symlink(&theirs, &store)?;
    resume(&dir).args(["--on", "local"]).run()?.fails(1, &["cells.jsonl is a link"])?;
    ensure!(fs::read(&theirs)? == before, "it was changed");
    fs::rename(&theirs, &store)?;
    resume(&dir).args(["--on", "local"]).run()?.exits(0).map(drop)
}

/// Regression: Slurm appended what tasks print through a link that waited under the log's name. And its script started whatever
/// the directory had in the program's place by then.
fn a_slurm_log_has_a_directory_of_its_own() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = simulated(folder.path(), "it's $(touch pwned)")?;
    let theirs = folder.path().join("theirs");
    fs::write(&theirs, "")?;
    fs::create_dir(dir.join("submissions/0"))?;
    symlink(&theirs, dir.join("submissions/0/0.log"))?;
    let bin = folder.path().join("fake");
    fs::create_dir(&bin)?;
    let arguments = folder.path().join("said");
    for (name, script) in [
        ("sbatch", format!("printf '%s\\n' \"$@\" > {}; echo 12", arguments.display())),
        ("squeue", format!("printf '%s\\n' \"$@\" > {}-of-squeue", arguments.display())),
    ] {
        files::script(&bin.join(name), &script)?;
    }
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let plan = ["--on", "slurm", "--detach"];
    let ran = resume(&dir).args(["--dry-run"]).args(plan).env("PATH", &path).run()?.exits(0)?;
    let quoted = "it'\\''s $(touch pwned)";
    ensure!(ran.text()?.contains(&format!("{quoted}/submissions/0/%a.log'")), "{}", ran.show());
    resume(&dir).args(plan).env("PATH", &path).run()?.exits(0)?;
    let words = fs::read_to_string(&arguments)?;
    ensure!(words.contains("$(touch pwned)/submissions/1/%a.log\n"), "{words}");
    pvticket(["status"]).args([&dir]).env("PATH", &path).run()?.exits(0)?;
    let words = fs::read_to_string(folder.path().join("said-of-squeue"))?;
    ensure!(words.contains("\n-u\n"), "only jobs of this user: {words}");
    let script = || {
        let script = dir.join("submissions/1/script.sh");
        Program::new("sh").args([script]).env("SLURM_ARRAY_TASK_ID", "0").run()
    };
    let program = dir.join("bin/pvticket");
    fs::remove_file(&program)?;
    let pwned = folder.path().join("pwned");
    files::script(&program, &format!("touch {}", pwned.display()))?;
    script()?.fails(1, &["bin/pvticket is not the program that was submitted"])?;
    ensure!(!pwned.exists(), "it was executed");
    files::install(product::binary(), &program)?;
    script()?.exits(0)?;
    ensure!(fs::read_dir(dir.join("parts"))?.count() == 1, "its task has run");
    ensure!(fs::read(&theirs)?.is_empty(), "it was written to");
    Ok(())
}

/// Regression: a sweep that was given another name was submitted under a third one.
fn a_name_that_is_no_text_is_refused_when_resumed() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = simulated(folder.path(), "sweep")?;
    let renamed = folder.path().join(OsString::from_vec(b"sw\xff".to_vec()));
    fs::rename(dir, &renamed)?;
    for engine in ["slurm", "manual"] {
        let ran = resume(&renamed).args(["--on", engine]).run()?;
        ran.fails(2, &["the name of a sweep's directory has to be UTF-8"])?;
    }
    resume(&renamed).args(["--on", "local"]).run()?.exits(0).map(drop)
}
