//! What is refused in one line: tasks on nodes that cannot run them, and a Slurm that misbehaves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::ensure;
use rustix::process::Signal;

use super::{resume, rounds, spec};
use crate::{
    facts::need_root,
    files,
    process::Program,
    product::{self, pvticket},
    tests,
};

tests![
    a_task_on_the_wrong_node_says_what_to_ask_for,
    options_that_contradict_each_other_are_refused,
    a_scancel_that_fails_ends_what_runs,
    a_slurm_that_fails_or_hangs_or_babbles_loses_nothing,
    a_program_in_the_directory_is_not_run,
];

const MEASURED: &str = "vcpus = 2\nlocks = \"ticket\"\nrepetitions = 2\nseconds = 0.05\n";

/// A prepared sweep of measured cells.
pub(super) fn prepared(folder: &Path, cpus: &str) -> anyhow::Result<PathBuf> {
    let dir = folder.join(format!("sweep-{cpus}"));
    let plan = ["run", "--on", "manual", "--host", "direct", "--node-cpus", cpus, "--dir"];
    pvticket(plan).args([&dir, &spec(folder, MEASURED)?]).run()?.exits(0)?;
    Ok(dir)
}

fn a_task_on_the_wrong_node_says_what_to_ask_for() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = prepared(folder.path(), "1")?;
    let task = |program: Program, dir: &Path| {
        program.args(["task", "--unit", "0"]).args([dir]).env("SLURMD_NODENAME", "n17")
    };
    // Another program, by one byte.
    let other = folder.path().join("other");
    let mut bytes = fs::read(product::binary())?;
    bytes.push(0);
    let longer = files::put(&folder, "longer", &bytes)?;
    files::install(&longer, &other)?;
    let ran = task(Program::new(&other), &dir).run()?;
    ran.fails(1, &["unit 0: node n17: this pvticket", "is not the one", "bin/pvticket"])?;
    let wide = prepared(folder.path(), "1000")?;
    let ran = task(Program::new(product::binary()), &wide).run()?;
    ran.fails(1, &["node n17: this task may use", "needs 1000", "ask for whole nodes"])?;
    pvticket(["task", "--unit", "2"]).args([&dir]).run()?.fails(2, &["has units 0 to 1"])?;
    let none = folder.path().join("none");
    pvticket(["task", "--unit", "0"]).args([&none]).run()?.fails(1, &["has no run"])?;
    ensure!(fs::read_dir(dir.join("parts"))?.count() == 0, "refused tasks write nothing");
    need_root()?;
    // Another user's job, whose groups are not those of /dev/kvm.
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
    let own = folder.path().join("own");
    files::install(product::binary(), &own)?;
    let script =
        "mount -t tmpfs t /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9";
    for (node, what) in [
        ("mknod -m 600 /dev/kvm c 10 232", "/dev/kvm may not be opened: ask the administrator"),
        ("true", "there is no /dev/kvm: ask the administrator"),
    ] {
        let script = format!("{script} && {node} && exec setpriv \"$@\"");
        let behind = Program::new("unshare").args(["-m", "sh", "-c", &script, "sh"]).args(nobody);
        let ran = task(behind.args([&own]), &dir).run()?;
        ran.fails(1, &["unit 0: node n17", what])?;
    }
    Ok(())
}

/// Regression: whatever had replaced the program in a sweep's directory was executed by whoever resumed it.
fn a_program_in_the_directory_is_not_run() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = prepared(folder.path(), "1")?;
    let (program, ran) = (dir.join("bin/pvticket"), folder.path().join("ran"));
    fs::remove_file(&program)?;
    files::script(&program, &format!("touch {}", ran.display()))?;
    for engine in ["local", "slurm", "manual"] {
        let reason = ["bin/pvticket is not the program that resumes the sweep"];
        resume(&dir).args(["--on", engine]).run()?.fails(2, &reason)?;
    }
    ensure!(!ran.exists(), "it was executed");
    files::install(product::binary(), &program)?;
    resume(&dir).args(["--on", "local"]).run()?.exits(0).map(drop)
}

fn options_that_contradict_each_other_are_refused() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let measured = spec(folder.path(), MEASURED)?;
    for (options, parts) in [
        (&["--on", "slurm"][..], &["--node-cpus N is needed"][..]),
        (&["--on", "slurm", "--node-cpus", "2"], &["add --host direct or --host emulated"]),
        (&["--on", "local", "--slurm", "-p x"], &["--slurm: the sweep is on local"]),
        (&["--on", "local", "--detach"], &["--detach"]),
        (&["--slurm", "-p x"], &["--slurm: add --on slurm"]),
        (&["--on", "local", "--jobs", "2"], &["--jobs"]),
        (&["--on", "local", "--unit-cells", "1"], &["--unit-cells", "whole round"]),
        (&["--on", "moon"], &["moon", "local"]),
        (
            &["--on", "slurm", "--node-cpus", "2", "--host", "direct", "--slurm", "--array=1-2"],
            &["--array belongs to pvticket"],
        ),
    ] {
        let dir = folder.path().join("refused");
        let run = pvticket(["run"]).args(options.iter().copied()).args(["--dir"]);
        run.args([&dir, &measured]).run()?.fails(2, parts)?;
        ensure!(!dir.exists(), "{options:?} left something behind");
    }
    let dir = prepared(folder.path(), "1")?;
    // `resume` prints what is missing; nothing else continues a sweep.
    let ran = resume(&dir).run()?.exits(0)?;
    ensure!(ran.text()?.contains("2 units are to be run: 0-1"), "{}", ran.show());
    pvticket(["compare", "--resume"]).args([&dir]).run()?.fails(2, &["is a sweep"]).map(drop)
}

/// Regression: scancel fails if a task ends while it looks; those that ran were not told, and their cells were not stored.
fn a_scancel_that_fails_ends_what_runs() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.005, 2))?;
    let bin = folder.path().join("fake");
    fs::create_dir(&bin)?;
    let [told, killed] = ["told", "killed"].map(|name| folder.path().join(name));
    let scancel = format!(
        "case \"$*\" in\n*PENDING*) exit 229;;\n*TERM*) touch '{}';;\n*) touch '{}';;\nesac",
        told.display(),
        killed.display()
    );
    let squeue = format!("[ -e '{}' ] || echo '12_0|RUNNING|None'", told.display());
    for (name, script) in [("sbatch", "echo 12"), ("scancel", &scancel), ("squeue", &squeue)] {
        files::script(&bin.join(name), script)?;
    }
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let dir = folder.path().join("run");
    let run = pvticket(["run", "--on", "slurm", "--dir"]).args([&dir, &spec]).env("PATH", &path);
    let mut head = run.start()?;
    head.wait_for_stderr("Ctrl-C ends the sweep")?;
    head.signal(Signal::INT)?;
    let ran = head.wait()?.exits(130)?;
    ensure!(told.exists() && !killed.exists(), "{}", ran.show());
    ran.complains(&["scancel failed (exit status: 229)", "are left; resume with"]).map(drop)
}

/// Programs in PATH that stand for Slurm's.
fn a_slurm_that_fails_or_hangs_or_babbles_loses_nothing() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.005, 2))?;
    let bin = folder.path().join("fake");
    fs::create_dir(&bin)?;
    let fake = |name: &str, script: &str| files::script(&bin.join(name), script);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let faked = |program: Program| program.env("PATH", &path).env("PVTICKET_SLURM_PATIENCE", "1");
    fake("squeue", "exit 0")?;
    fake("scancel", "exit 0")?;
    for (number, (script, what)) in [
        (
            "echo 'sbatch: error: invalid account' >&2; exit 1",
            "sbatch failed (exit status: 1): sbatch: error: invalid account",
        ),
        ("sleep 600", "sbatch has not answered for 1 s"),
        (
            "echo hello; echo world",
            "sbatch printed 'hello; world' where a job's number was expected",
        ),
        ("kill -9 $$", "sbatch failed (signal: 9"),
    ]
    .into_iter()
    .enumerate()
    {
        fake("sbatch", script)?;
        let dir = folder.path().join(format!("run-{number}"));
        let run = faked(pvticket(["run", "--on", "slurm", "--dir"]).args([&dir, &spec]));
        run.run()?.fails(1, &["nothing is lost, resume with", what])?;
        // With another engine all that was planned is run.
        resume(&dir).args(["--on", "local"]).run()?.exits(0)?;
    }
    let dir = folder.path().join("queue");
    fake("sbatch", "echo 12")?;
    let detached = ["run", "--detach", "--on", "slurm", "--dir"];
    faked(pvticket(detached).args([&dir, &spec])).run()?.exits(0)?;
    for (script, what) in [
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
            "Unable to contact",
        ),
        ("sleep 600", "squeue has not answered for 1 s"),
        ("echo rubbish", "squeue printed 'rubbish'"),
    ] {
        fake("squeue", script)?;
        faked(resume(&dir)).run()?.fails(1, &["nothing was submitted", what])?;
        let status = faked(pvticket(["status"]).args([&dir])).run()?.exits(0)?;
        ensure!(status.text()?.contains(what), "{}", status.show());
    }
    // Two units wait for what never comes; then they are gone without a word.
    fake("squeue", "echo '12_0|PENDING|PartitionTimeLimit'; echo '12_1|PENDING|BadConstraints'")?;
    let ran = faked(resume(&dir)).run()?.exits(1)?;
    ensure!(
        ran.errors().contains("unit 0 is not done: it never starts: PartitionTimeLimit"),
        "{}",
        ran.show()
    );
    fake("squeue", "exit 0")?;
    let ran = faked(resume(&dir)).run()?.exits(1)?;
    ensure!(
        ran.errors().contains("unit 1 is not done: its task ended without a word"),
        "{}",
        ran.show()
    );
    resume(&dir).args(["--on", "local"]).run()?.exits(0).map(drop)
}
