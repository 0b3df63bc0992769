//! Sweeps on a real Slurm, whose daemons the tests start, and some of which they kill.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    Cell, check, check_plan,
    cluster::{Cluster, User, users, wait_until},
    plain, random, rounds, spec, whole_parts,
};
use crate::{facts::need_kvm, files, process::Program, product, ran::Ran, tests};

tests![
    a_plain_users_cluster_runs_a_sweep,
    tasks_are_killed_and_no_cell_is_lost_or_twice,
    measured_rounds_are_those_of_a_plain_run,
    a_dead_head_and_ctrl_c_lose_nothing => Long("18 s; tasks are killed in make test"),
    two_nodes_that_run_the_same_unit_count_once,
    a_dead_controller_is_waited_for => Long("16 s: the controller is started again"),
    what_never_starts_is_said,
    a_cluster_leaves_no_process,
];

/// How long a step of Slurm may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a sweep of many units may take, in seconds.
const PATIENCE_OF_HEADS: u64 = 600;

/// A cluster, a spec, and what a plain run of it gives.
pub(super) struct Kit {
    cluster: Cluster,
    pvticket: PathBuf,
    spec: PathBuf,
    pub(super) dir: PathBuf,
    plain: BTreeMap<u32, Cell>,
    /// Of the plain run.
    _folder: tempfile::TempDir,
}

impl Kit {
    pub(super) fn new(nodes: usize, user: User, text: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::start(nodes, user)?;
        let folder = files::scratch()?;
        let spec = spec(folder.path(), text)?;
        let plain = plain(folder.path(), &spec)?;
        // The cluster's user may not see where the product was built.
        let pvticket = folder.path().join("pvticket");
        files::install(product::binary(), &pvticket)?;
        let dir = cluster.path().join("work/sweep");
        Ok(Self { cluster, pvticket, spec, dir, plain, _folder: folder })
    }

    fn pvticket(&self, words: &[&str]) -> Program {
        self.cluster.program(&self.pvticket).args(words.iter().copied())
    }

    fn run(&self, options: &[&str]) -> Program {
        let run = self.pvticket(&["run", "--on", "slurm"]).args(options.iter().copied());
        run.args(["--dir"]).args([&self.dir, &self.spec])
    }

    fn resume(&self) -> Program {
        self.pvticket(&["run", "--resume"]).args([&self.dir])
    }

    /// Runs the sweep, and submits what is missing until nothing is, while so many tasks are killed, by
    /// SIGKILL and SIGTERM. Returns the number of submissions.
    pub(super) fn run_and_kill(&self, options: &[&str], kills: u32) -> anyhow::Result<u32> {
        let (mut state, mut killed, mut submissions) = (7, 0, 0);
        loop {
            let head = if submissions == 0 { self.run(options) } else { self.resume() };
            let mut running = head.limit(PATIENCE_OF_HEADS).start()?;
            submissions += 1;
            while killed < kills && !running.has_ended()? {
                let tasks = self.tasks()?;
                if !tasks.is_empty() {
                    let victim = tasks[random(&mut state, tasks.len())];
                    let signal = if killed % 3 == 2 { Signal::TERM } else { Signal::KILL };
                    // The task may have ended in the meantime.
                    killed += u32::from(kill_process(victim, signal).is_ok());
                }
                thread::sleep(Duration::from_millis(100 + random(&mut state, 300) as u64));
            }
            let ran = running.wait()?;
            match ran.status()? {
                0 => break,
                _ => ensure!(ran.errors().contains("are left; resume with"), "{}", ran.show()),
            }
            ensure!(submissions < 4 + kills, "{}", ran.show());
        }
        ensure!(killed == kills, "{killed} tasks were killed");
        Ok(submissions)
    }

    pub(super) fn check(&self) -> anyhow::Result<Vec<String>> {
        check(&self.dir, &self.plain)
    }

    fn status(&self) -> anyhow::Result<Ran> {
        self.pvticket(&["status"]).args([&self.dir]).run()?.exits(0)
    }

    /// The tasks that run.
    fn tasks(&self) -> anyhow::Result<Vec<Pid>> {
        self.cluster.processes(&self.dir.join("bin/pvticket"), "task")
    }

    fn queue(&self) -> anyhow::Result<String> {
        let ran = self.cluster.slurm("squeue", &["-h", "-r", "-o", "%i %T %N"])?.exits(0)?;
        Ok(ran.text()?.trim().to_owned())
    }

    fn wait_for_empty_queue(&self) -> anyhow::Result<()> {
        wait_until("the queue is empty", PATIENCE, || Ok(self.queue()?.is_empty()))
    }
}

/// As `nobody`, if the tests are root's; otherwise the other tests are a plain user's already.
fn a_plain_users_cluster_runs_a_sweep() -> anyhow::Result<()> {
    let kit = Kit::new(2, User::Nobody, &rounds(0.005, 4))?;
    let dry = kit.run(&["--dry-run"]).run()?.exits(0)?;
    for part in
        ["--array=0-3", "pvticket task /", "Slurm says: sbatch: Job", "4 units of up to 4 cells"]
    {
        ensure!(dry.text()?.contains(part), "no {part}\n{}", dry.show());
    }
    ensure!(!kit.dir.exists(), "a dry run leaves nothing");
    let ran = kit.run(&[]).run()?.exits(0)?;
    ensure!(ran.errors().contains("4 units submitted as job"), "{}", ran.show());
    let nodes = kit.check()?;
    ensure!(nodes.iter().all(|node| ["n1", "n2"].contains(&node.as_str())), "{nodes:?}");
    let logs = kit.dir.join("submissions/0");
    ensure!(fs::read_to_string(logs.join("script.sh"))?.contains("--submission 0"), "the script");
    ensure!(fs::read_to_string(logs.join("3.log"))?.contains("measured "), "what unit 3 printed");
    Ok(())
}

fn tasks_are_killed_and_no_cell_is_lost_or_twice() -> anyhow::Result<()> {
    let kit = Kit::new(3, User::Own, &rounds(0.02, 8))?;
    kit.run_and_kill(&[], 6)?;
    let nodes = kit.check()?;
    ensure!(nodes.len() > 1, "only {nodes:?} took part");
    Ok(())
}

/// Cells with real guests on three nodes: as many and the same as in a plain run, each round on one
/// node. What they measured differs, and the nodes share two CPUs.
fn measured_rounds_are_those_of_a_plain_run() -> anyhow::Result<()> {
    need_kvm()?;
    let text = "name = \"measured\"\nhost = \"direct\"\nlocks = [\"ticket\", \"pv-ticket\"]\n\
                vcpus = [\"1x\", \"2x\"]\nslots = 2\npolicies = [\"host\", \"rr\"]\n\
                seconds = 0.05\nrepetitions = 6\n";
    let kit = Kit::new(3, User::Own, text)?;
    let ran = kit.run(&["--node-cpus", "2"]).run()?.exits(0)?;
    ensure!(ran.errors().contains("6 units submitted as job"), "{}", ran.show());
    let nodes = check_plan(&kit.dir, &kit.plain)?;
    ensure!(nodes.len() > 1, "only {nodes:?} took part");
    let report = kit.pvticket(&["report"]).args([&kit.dir]).run()?.exits(0)?;
    for part in nodes.iter().map(String::as_str).chain(["acquisitions", "under rr"]) {
        ensure!(report.text()?.contains(part), "no {part}\n{}", report.show());
    }
    Ok(())
}

fn a_dead_head_and_ctrl_c_lose_nothing() -> anyhow::Result<()> {
    let kit = Kit::new(2, User::Own, &rounds(0.02, 6))?;
    let mut head = kit.run(&[]).start()?;
    head.wait_for_stderr("submitted as job")?;
    head.signal(Signal::KILL)?;
    let _ = head.wait()?;
    // While its tasks run, and after them, nothing is submitted again.
    let resumed = kit.resume().run()?.exits(0)?;
    ensure!(resumed.errors().contains("6 units of an earlier submission"), "{}", resumed.show());
    ensure!(!resumed.errors().contains("submitted"), "{}", resumed.show());
    kit.check()?;
    ensure!(whole_parts(&kit.dir) == 6, "each unit was run once");
    fs::remove_dir_all(&kit.dir)?;
    let mut head = kit.run(&[]).start()?;
    head.wait_until("a part", || {
        fs::read_dir(kit.dir.join("parts")).is_ok_and(|all| all.count() > 0)
    })?;
    thread::sleep(Duration::from_millis(200));
    head.signal(Signal::INT)?;
    let ran = head.wait()?.exits(130)?;
    ensure!(ran.errors().contains("are left; resume with"), "{}", ran.show());
    kit.wait_for_empty_queue()?;
    let parts = fs::read_dir(kit.dir.join("parts"))?.flatten();
    let aborted = parts
        .filter_map(|part| fs::read_to_string(part.path()).ok())
        .filter(|text| text.contains("\"status\":\"aborted\""));
    ensure!(aborted.count() > 0, "the running cells are stored as aborted\n{}", ran.show());
    kit.resume().run()?.exits(0)?;
    kit.check().map(drop)
}

/// slurmd is killed and its node declared dead: Slurm runs the unit again elsewhere, while the first
/// attempt goes on.
fn two_nodes_that_run_the_same_unit_count_once() -> anyhow::Result<()> {
    let mut kit = Kit::new(2, User::Own, &rounds(0.05, 1))?;
    kit.run(&["--detach"]).run()?.exits(0)?;
    wait_until("the unit runs", PATIENCE, || {
        Ok(kit.tasks()?.len() == 1 && parts(&kit.dir).len() == 1)
    })?;
    let queue = kit.queue()?;
    let words: Vec<&str> = queue.split(' ').collect();
    let (job, node) = (words[0], words.get(2).copied().context("no node")?);
    kit.cluster.kill(node)?;
    // The first attempt would end before the second begins, on a busy machine.
    let first = kit.tasks()?.first().copied().context("it has ended")?;
    kill_process(first, Signal::STOP)?;
    let name = format!("nodename={node}");
    kit.cluster.slurm("scontrol", &["update", &name, "state=down", "reason=test"])?.exits(0)?;
    let job = format!("jobid={job}");
    wait_until("it is queued again", PATIENCE, || {
        // The command fails once the second attempt runs.
        let _ = kit.cluster.slurm("scontrol", &["update", &job, "StartTime=now"])?;
        Ok(parts(&kit.dir).len() == 2)
    })?;
    ensure!(kit.tasks()?.len() == 2, "both attempts run: {:?}", kit.tasks()?);
    kill_process(first, Signal::CONT)?;
    wait_until("both write all of it", PATIENCE, || Ok(whole_parts(&kit.dir) == 2))?;
    ensure!(kit.check()?.len() == 1, "one node's cells count");
    let status = kit.status()?;
    ensure!(status.text()?.contains("another attempt at the unit counts"), "{}", status.show());
    let resumed = kit.resume().run()?.exits(0)?;
    ensure!(!resumed.errors().contains("submitted"), "{}", resumed.show());
    Ok(())
}

fn parts(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("parts")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// slurmctld is killed in the middle and started again with its last state, which may be older than
/// the start of the tasks: it then runs them again.
fn a_dead_controller_is_waited_for() -> anyhow::Result<()> {
    let mut kit = Kit::new(2, User::Own, &rounds(0.03, 6))?;
    let mut head = kit.run(&[]).start()?;
    head.wait_until("a part", || !parts(&kit.dir).is_empty())?;
    kit.cluster.kill("slurmctld")?;
    thread::sleep(Duration::from_millis(500));
    kit.cluster.controller(false)?;
    // Nodes whose tasks it does not remember are drained, at any time until the sweep ends.
    let is_over = AtomicBool::new(false);
    let cluster = &kit.cluster;
    let ran = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for node in ["nodename=n1", "nodename=n2"] {
                    let _ = cluster.slurm("scontrol", &["update", node, "state=resume"]);
                }
                thread::sleep(Duration::from_millis(500));
            }
        });
        let ran = head.wait();
        is_over.store(true, Ordering::Relaxed);
        ran
    })?;
    if ran.status()? != 0 {
        // The head asked while the controller knew nothing of the tasks.
        ensure!(ran.errors().contains("are left; resume with"), "{}", ran.show());
        kit.resume().run()?.exits(0)?;
    }
    kit.check().map(drop)
}

fn what_never_starts_is_said() -> anyhow::Result<()> {
    let kit = Kit::new(1, User::Own, &rounds(0.005, 2))?;
    let bad = kit.run(&["--slurm", "--partition=nowhere"]).run()?;
    bad.fails(1, &["sbatch failed", "invalid partition", "nothing is lost"])?;
    let long = kit.resume().args(["--slurm", "--time=10:00:00"]).run()?.exits(1)?;
    let reason = "unit 0 is not done: it never starts: PartitionTimeLimit";
    ensure!(long.errors().contains(reason), "{}", long.show());
    kit.wait_for_empty_queue()?;
    // What cannot be run twice can be corrected.
    kit.resume().args(["--slurm", "--time=10"]).run()?.exits(0)?;
    kit.check().map(drop)
}

/// Of the tests themselves: a slurmstepd whose task ends without a slurmctld never exits.
fn a_cluster_leaves_no_process() -> anyhow::Result<()> {
    let mut cluster = Cluster::start(1, User::Own)?;
    let dir = cluster.path().to_owned();
    let log = format!("--output={}", dir.join("work/log").display());
    cluster.slurm("sbatch", &[&log, "--wrap=exec sleep 1000"])?.exits(0)?;
    wait_until("the task runs", PATIENCE, || Ok(dir.join("work/log").exists()))?;
    cluster.kill("slurmctld")?;
    cluster.kill("n1")?;
    ensure!(users(&dir).len() >= 2, "the task, its slurmstepd: {:?}", users(&dir));
    drop(cluster);
    ensure!(users(&dir).is_empty(), "{:?}", users(&dir));
    Ok(())
}
