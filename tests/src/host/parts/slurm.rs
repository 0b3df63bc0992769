//! Parts as a job array of a real Slurm, whose daemons the test starts.

use super::{
    check,
    cluster::{Cluster, NODES, users},
    plain, rounds,
};
use crate::{host::run::spec, prelude::*, process, product};

tests![eight_parts_survive_a_dead_node_and_a_repeat, a_cluster_leaves_no_process,];

/// Timeout for a step of Slurm on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A cluster, a spec, and a plain run of it.
struct Kit {
    cluster: Cluster,
    pvticket: PathBuf,
    spec: PathBuf,
    dir: PathBuf,
    plain: PathBuf,
    folder: tempfile::TempDir,
}

impl Kit {
    fn new(text: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::start()?;
        let folder = files::scratch()?;
        let spec = spec(folder.path(), text)?;
        let plain = plain(folder.path(), &spec)?;
        // The cluster's user may have no access to the folder of the product.
        let pvticket = folder.path().join("pvticket");
        files::install(product::binary(), &pvticket)?;
        let dir = cluster.path().join("work/parts");
        Ok(Self { cluster, pvticket, spec, dir, plain, folder })
    }

    fn run(&self, words: &[&str]) -> Program {
        let run = self.cluster.program(&self.pvticket).args(["run", "--dir"]);
        run.args([&self.dir, &self.spec]).args(words.iter().copied())
    }

    /// Submits the script of `run --slurm`, and returns the job's number.
    fn submit(&self, parts: &str, options: &[&str]) -> anyhow::Result<String> {
        let script = self.run(&["--slurm", parts]).run()?.exits(0)?;
        let file = files::put(&self.folder, "script", script.text()?.as_bytes())?;
        let file = file.display().to_string();
        let words: Vec<&str> =
            options.iter().copied().chain(["--parsable", "--mem=100", &file]).collect();
        let ran = self.cluster.slurm("sbatch", &words)?.exits(0)?;
        Ok(ran.text()?.trim().to_owned())
    }

    /// Returns job, state and node of each waiting or running element.
    fn queue(&self) -> anyhow::Result<Vec<[String; 3]>> {
        let ran = self.cluster.slurm("squeue", &["-h", "-r", "-o", "%i|%T|%N"])?.exits(0)?;
        let element = |line: &str| {
            let mut words = line.split('|').map(str::to_owned);
            [(); 3].map(|()| words.next().unwrap_or_default())
        };
        Ok(ran.text()?.lines().map(element).collect())
    }

    fn wait_for_the_end(&self) -> anyhow::Result<()> {
        wait_until("empty queue", TIMEOUT, || {
            // A dead node's elements wait for their start time.
            for [job, state, _] in self.queue()? {
                if state == "PENDING" {
                    let job = format!("jobid={job}");
                    let _ = self.cluster.slurm("scontrol", &["update", &job, "StartTime=now"])?;
                }
            }
            Ok(self.queue()?.is_empty())
        })
    }
}

/// slurmd is killed with its element and the node declared down: Slurm requeues the element, which resumes
/// its part on the other node. One part is submitted again after it is done.
fn eight_parts_survive_a_dead_node_and_a_repeat() -> anyhow::Result<()> {
    let mut kit = Kit::new(&rounds(0.03, 8))?;
    kit.submit("8", &[])?;
    let mut victim = String::new();
    wait_until("node that measures", TIMEOUT, || {
        let running = kit.queue()?.into_iter().find(|[_, state, _]| state == "RUNNING");
        victim = running.map(|[_, _, node]| node).unwrap_or_default();
        Ok(!victim.is_empty() && fs::read_dir(&kit.dir).is_ok_and(|entries| entries.count() > 1))
    })?;
    kit.cluster.kill(&victim);
    let name = format!("nodename={victim}");
    kit.cluster.slurm("scontrol", &["update", &name, "state=down", "reason=test"])?.exits(0)?;
    // slurmstepd and its element outlive slurmd, as on a node that only lost its network.
    let is_element = |process: &Pid| {
        let line = fs::read(process::folder(*process).join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"--part")
    };
    if let Some(element) = users(kit.cluster.path()).into_iter().find(is_element) {
        let _ = kill_process(element, Signal::KILL);
    }
    kit.wait_for_the_end()?;
    let again = kit.submit("8", &["--array=3"])?;
    kit.wait_for_the_end()?;
    let log = fs::read_to_string(kit.dir.join("3-of-8.log"))?;
    ensure!(log.contains("part 3/8 is already complete"), "job {again}: {log}");
    // A part's second element may have found the first still running.
    let unfinished: Vec<u32> = (1..=8).filter(|number| !is_done(&kit, *number)).collect();
    for number in unfinished {
        kit.submit("8", &[&format!("--array={number}")])?;
    }
    kit.wait_for_the_end()?;
    let nodes = check(&kit.dir, &kit.plain)?;
    ensure!(nodes.iter().all(|node| NODES.contains(&node.as_str())), "{nodes:?}");
    Ok(())
}

fn is_done(kit: &Kit, number: u32) -> bool {
    let store = kit.dir.join(format!("{number}-of-8/cells.jsonl"));
    let text = fs::read_to_string(store).unwrap_or_default();
    text.matches("\"status\":\"done\"").count() == 4
}

/// Tests the tests: a slurmstepd whose task ends without a slurmctld never exits.
fn a_cluster_leaves_no_process() -> anyhow::Result<()> {
    let mut cluster = Cluster::start()?;
    let dir = cluster.path().to_owned();
    let log = format!("--output={}", dir.join("work/log").display());
    cluster.slurm("sbatch", &[&log, "--wrap=exec sleep 1000"])?.exits(0)?;
    wait_until("running task", TIMEOUT, || Ok(dir.join("work/log").exists()))?;
    for daemon in ["slurmctld", "n1", "n2"] {
        cluster.kill(daemon);
    }
    ensure!(users(&dir).len() >= 2, "the task, its slurmstepd: {:?}", users(&dir));
    drop(cluster);
    ensure!(users(&dir).is_empty(), "{:?}", users(&dir));
    Ok(())
}
