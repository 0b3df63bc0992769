//! A Slurm cluster on this host: munged, slurmctld and two slurmds in a private directory, with free ports.
//! Its user is `nobody` if the tests run as root, and the tests' own otherwise. Its nodes are names for this
//! host.

use std::net::TcpListener;

use rustix::{
    process::{geteuid, getpid},
    system::uname,
};

use crate::prelude::*;

/// Folders of Debian's daemons, which need not be in PATH.
const PLACES: [&str; 2] = ["/usr/sbin", "/usr/bin"];

/// Timeout for the cluster's start, which takes 0.2 to 1.3 s on two quiet CPUs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Options of setpriv(1) for the user `nobody` of Debian.
const NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];

pub const NODES: [&str; 2] = ["n1", "n2"];

/// Returns the options of setpriv(1) for the cluster's user.
fn plain_user() -> &'static [&'static str] {
    if geteuid().is_root() { &NOBODY } else { &[] }
}

/// A running cluster; dropping it kills its processes by id.
#[derive(Debug)]
pub struct Cluster {
    folder: TempDir,
    /// `munged`, `slurmctld` and the slurmds of the [`NODES`].
    daemons: Vec<(&'static str, Running)>,
}

impl Cluster {
    /// Starts a cluster whose nodes have two CPUs each.
    pub fn start() -> anyhow::Result<Self> {
        for program in ["slurmctld", "slurmd", "munged", "sbatch", "setpriv"] {
            if find(program).is_none() {
                return skip(format!("no {program} here (make setup installs it on Debian)"));
            }
        }
        let mut cluster = Self { folder: files::scratch()?, daemons: Vec::new() };
        cluster.prepare()?;
        let dir = cluster.path().display().to_string();
        let munge = format!(
            "--foreground --force --num-threads=1 --key-file={dir}/munge/key --socket={dir}/munge/socket \
             --pid-file={dir}/munge/pid --seed-file={dir}/munge/seed --log-file={dir}/munge/log"
        );
        cluster.daemon("munged", "munged", &munge)?;
        let socket = cluster.path().join("munge/socket");
        wait_until("munged that listens", TIMEOUT, || Ok(socket.exists()))?;
        cluster.daemon("slurmctld", "slurmctld", &format!("-D -f {dir}/slurm.conf -c"))?;
        for node in NODES {
            cluster.daemon(node, "slurmd", &format!("-D -N {node} -f {dir}/slurm.conf"))?;
        }
        cluster.wait_for_idle()?;
        Ok(cluster)
    }

    /// Returns the cluster's directory, which its user may write.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn prepare(&self) -> anyhow::Result<()> {
        let at = |name: &str| self.path().join(name);
        for name in ["munge", "state", "run", "log", "work", "spool/n1", "spool/n2"] {
            fs::create_dir_all(at(name))?;
        }
        fs::write(at("munge/key"), fs::read("/proc/sys/kernel/random/uuid")?.repeat(4))?;
        fs::write(at("slurm.conf"), self.configuration()?)?;
        Program::new("chmod").args(["400".into(), at("munge/key")]).run()?.exits(0)?;
        if geteuid().is_root() {
            let owner = Program::new("chown").args(["-R", "65534:65534"]);
            owner.args([self.path()]).run()?.exits(0)?;
        }
        Ok(())
    }

    fn configuration(&self) -> anyhow::Result<String> {
        let id = Program::new("setpriv").args(plain_user()).args(["id", "-un"]).run()?.exits(0)?;
        let host = uname().nodename().to_string_lossy().into_owned();
        let mut text = include_str!("slurm.conf")
            .replace("{dir}", &self.path().display().to_string())
            .replace("{user}", id.text()?.trim())
            .replace("{host}", host.split('.').next().unwrap_or_default());
        // All ports are held until the last is found, so that they differ.
        let ports = (0..=NODES.len()).map(|_| TcpListener::bind("127.0.0.1:0"));
        for (number, port) in ports.collect::<Result<Vec<_>, _>>()?.iter().enumerate() {
            let port = port.local_addr()?.port().to_string();
            text = text.replace(&format!("{{port{number}}}"), &port);
        }
        Ok(text)
    }

    fn daemon(&mut self, name: &'static str, program: &str, options: &str) -> anyhow::Result<()> {
        let path = find(program).with_context(|| format!("no {program}"))?;
        // A daemon must not outlive its test.
        let daemon = Program::new("setpriv").args(["--pdeathsig", "KILL"]).args(plain_user());
        let daemon = daemon.args(["--".into(), path]).args(options.split(' '));
        self.daemons.push((name, daemon.start()?));
        Ok(())
    }

    pub fn kill(&mut self, name: &str) {
        self.daemons.retain(|(daemon, _)| *daemon != name);
    }

    /// Waits until all nodes are idle.
    fn wait_for_idle(&self) -> anyhow::Result<()> {
        wait_until("idle nodes", TIMEOUT, || {
            let ran = self.slurm("sinfo", &["-h", "-t", "idle", "-o", "%D"])?;
            Ok(ran.text()?.trim() == NODES.len().to_string())
        })
        .with_context(|| {
            let logs = fs::read_to_string(self.path().join("log/slurmctld.log"));
            logs.unwrap_or_default()
        })
    }

    /// Builds a program that runs as the cluster's user and finds the cluster.
    pub fn program(&self, program: &Path) -> Program {
        let program = Program::new("setpriv").args(plain_user()).args([program]);
        program.env("SLURM_CONF", self.path().join("slurm.conf")).env("HOME", self.path())
    }

    /// Runs one of Slurm's commands.
    pub fn slurm(&self, program: &str, args: &[&str]) -> anyhow::Result<RunResult> {
        let path = find(program).with_context(|| format!("no {program}"))?;
        self.program(&path).args(args).run()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.daemons.clear();
        // A slurmstepd outlives its slurmd, and retries without limit to report its task's end to slurmctld.
        // A test ends when the store is complete, which may be before that report.
        let no_users = || {
            let users = users(self.path());
            for id in &users {
                let _ = kill_process(*id, Signal::KILL);
            }
            Ok(users.is_empty())
        };
        let _ = wait_until("end of the cluster's processes", TIMEOUT, no_users);
    }
}

/// Returns the other processes with open files in this directory, where slurmd, slurmstepd and tasks have
/// their logs.
pub fn users(dir: &Path) -> Vec<Pid> {
    let uses = |process: &Path| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
        links.any(|link| link.starts_with(dir))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let used = processes.filter(|entry| uses(&entry.path()));
    let ids = used.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    ids.filter(|id| *id != getpid()).collect()
}

/// Finds a program of Slurm.
fn find(name: &str) -> Option<PathBuf> {
    PLACES.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file())
}
