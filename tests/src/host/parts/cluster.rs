//! A Slurm cluster on this host: munged, slurmctld and some slurmds in a private directory, with free
//! ports, as the current user or as a plain one. Its nodes are names for this same machine.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use rustix::{
    process::{geteuid, getpid},
    system::uname,
};

use crate::prelude::*;

/// Where Debian installs daemons; it need not be in PATH.
const PLACES: [&str; 2] = ["/usr/sbin", "/usr/bin"];

/// How long the cluster may take to start; 0.2 to 1.3 s on two quiet CPUs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The user `nobody` in Debian; any unprivileged id would do.
const NOBODY: u32 = 65534;

/// Whose cluster it is: only its jobs run on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user of the tests.
    Own,
    /// `nobody`; only root can become it.
    Nobody,
}

impl User {
    /// A command as this user.
    fn command(self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        // A daemon whose test dies must not stay.
        command.args(["--pdeathsig", "KILL"]);
        if self == Self::Nobody {
            let id = NOBODY.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        }
        command.arg("--").arg(program);
        command
    }

    fn name(self) -> anyhow::Result<String> {
        if self == Self::Nobody {
            return Ok("nobody".into());
        }
        let ran = Program::new("id").args(["-un"]).run()?.exits(0)?;
        Ok(ran.text()?.trim().to_owned())
    }
}

/// A running cluster; stopped by process ids when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    folder: TempDir,
    user: User,
    nodes: usize,
    /// `slurmctld`, `n1`, `n2`, ..., `munged`, in this order.
    daemons: Vec<(String, Child)>,
}

impl Cluster {
    /// Starts a cluster of so many nodes with two CPUs each.
    pub fn start(nodes: usize, user: User) -> anyhow::Result<Self> {
        for program in ["slurmctld", "slurmd", "munged", "sbatch", "setpriv"] {
            if find(program).is_none() {
                return skip(format!(
                    "there is no {program} here (make setup installs it on Debian)"
                ));
            }
        }
        if user == User::Nobody && !geteuid().is_root() {
            return skip("only root can become another user");
        }
        let mut cluster = Self { folder: files::scratch()?, user, nodes, daemons: Vec::new() };
        cluster.prepare()?;
        cluster.munge()?;
        cluster.controller(true)?;
        for number in 1..=nodes {
            cluster.node(number)?;
        }
        cluster.wait_for_idle()?;
        Ok(cluster)
    }

    /// The cluster's directory, in which its user may write.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn prepare(&self) -> anyhow::Result<()> {
        let at = |name: &str| self.path().join(name);
        for name in ["munge", "state", "run", "log", "work"] {
            fs::create_dir(at(name))?;
        }
        for number in 1..=self.nodes {
            fs::create_dir_all(at("spool").join(format!("n{number}")))?;
        }
        let key: Vec<u8> = fs::read("/proc/sys/kernel/random/uuid")?.repeat(4);
        fs::write(at("munge/key"), key)?;
        fs::write(at("slurm.conf"), self.configuration()?)?;
        let path = self.path().display().to_string();
        Program::new("chmod").args(["400", &format!("{path}/munge/key")]).run()?.exits(0)?;
        if self.user == User::Nobody {
            let owner = format!("{NOBODY}:{NOBODY}");
            Program::new("chown").args(["-R", &owner, &path]).run()?.exits(0)?;
        }
        Ok(())
    }

    fn configuration(&self) -> anyhow::Result<String> {
        // All are held until the last is found, so that they differ.
        let ports: Vec<TcpListener> =
            (0..=self.nodes).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
        let mut numbers = Vec::new();
        for port in &ports {
            numbers.push(port.local_addr()?.port());
        }
        let (user, dir) = (self.user.name()?, self.path().display());
        let host = uname().nodename().to_string_lossy().into_owned();
        let host = host.split('.').next().unwrap_or_default().to_owned();
        let mut text = format!(
            "ClusterName=pvticket-test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\n\
             SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/munge\nCredType=cred/munge\n\
             AuthInfo=socket={dir}/munge/socket\nStateSaveLocation={dir}/state\n\
             SlurmdSpoolDir={dir}/spool/%n\nSlurmctldPidFile={dir}/run/slurmctld.pid\n\
             SlurmdPidFile={dir}/run/slurmd.%n.pid\nSlurmctldLogFile={dir}/log/slurmctld.log\n\
             SlurmdLogFile={dir}/log/slurmd.%n.log\n{SETTINGS}",
            numbers[0]
        );
        for (number, port) in (1..).zip(&numbers[1..]) {
            text += &format!(
                "NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 \
                 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000 \
                 State=UNKNOWN\n"
            );
        }
        text += "PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=NO\n";
        Ok(text)
    }

    fn daemon(&mut self, name: &str, program: &str, args: &[&str]) -> anyhow::Result<()> {
        let path = find(program).with_context(|| format!("no {program}"))?;
        let log = fs::File::create(self.path().join("log").join(format!("{name}.out")))?;
        let mut command = self.user.command(&path);
        command.args(args).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        self.daemons.push((name.to_owned(), child));
        Ok(())
    }

    fn munge(&mut self) -> anyhow::Result<()> {
        let at =
            |what: &str, name: &str| format!("--{what}={}/munge/{name}", self.path().display());
        let [key, socket, pid, seed, log] = [
            at("key-file", "key"),
            at("socket", "socket"),
            at("pid-file", "pid"),
            at("seed-file", "seed"),
            at("log-file", "log"),
        ];
        let args = ["--foreground", "--force", "--num-threads=1", &key, &socket, &pid, &seed, &log];
        self.daemon("munged", "munged", &args)?;
        let socket = self.path().join("munge/socket");
        wait_until("munged that listens", PATIENCE, || Ok(socket.exists()))
    }

    /// Starts slurmctld, without the state of an earlier one if it is `new`.
    pub fn controller(&mut self, new: bool) -> anyhow::Result<()> {
        let conf = self.path().join("slurm.conf").display().to_string();
        let args = ["-D", "-f", &conf, "-c"];
        self.daemon("slurmctld", "slurmctld", if new { &args } else { &args[..3] })
    }

    /// Starts the slurmd of a node.
    pub fn node(&mut self, number: usize) -> anyhow::Result<()> {
        let conf = self.path().join("slurm.conf").display().to_string();
        let name = format!("n{number}");
        self.daemon(&name, "slurmd", &["-D", "-N", &name, "-f", &conf])
    }

    /// Kills a daemon.
    pub fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let at = self.daemons.iter().position(|(daemon, _)| daemon == name);
        let (_, mut child) = self.daemons.remove(at.with_context(|| format!("no {name}"))?);
        child.kill()?;
        child.wait().map(drop).context("cannot wait")
    }

    /// Waits until all nodes are idle.
    pub fn wait_for_idle(&self) -> anyhow::Result<()> {
        wait_until("idle nodes", PATIENCE, || {
            let ran = self.slurm("sinfo", &["-h", "-t", "idle", "-o", "%D"])?;
            Ok(ran.text()?.trim() == self.nodes.to_string())
        })
        .with_context(|| {
            let logs = fs::read_to_string(self.path().join("log/slurmctld.log"));
            logs.unwrap_or_default()
        })
    }

    /// A program as the cluster's user, that finds the cluster.
    pub fn program(&self, program: &Path) -> Program {
        let all = match self.user {
            User::Own => Program::new(program),
            User::Nobody => {
                let id = NOBODY.to_string();
                Program::new("setpriv")
                    .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
                    .args([program])
            }
        };
        all.env("SLURM_CONF", self.path().join("slurm.conf")).env("HOME", self.path())
    }

    /// One of Slurm's commands.
    pub fn slurm(&self, program: &str, args: &[&str]) -> anyhow::Result<Ran> {
        let path = find(program).with_context(|| format!("no {program}"))?;
        self.program(&path).args(args).run()
    }

    /// The processes that run this program with this word among their arguments.
    pub fn processes(&self, program: &Path, word: &str) -> anyhow::Result<Vec<Pid>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|id| id.parse().ok()) else {
                continue;
            };
            let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
            let mut words = line.split(|byte| *byte == 0);
            let is_it = words.next() == Some(program.as_os_str().as_encoded_bytes())
                && words.any(|argument| argument == word.as_bytes());
            found.extend(Pid::from_raw(id).filter(|_| is_it));
        }
        // A child that has not executed its program yet has its parent's command line.
        let forked: Vec<Pid> = found.iter().flat_map(|parent| children(*parent)).collect();
        found.retain(|process| !forked.contains(process));
        Ok(found)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, child) in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
        // A slurmstepd outlives its slurmd, and retries without limit to report its task's end to slurmctld.
        // A test ends when the store is whole, which may be before that was said.
        let left = || {
            let users = users(self.path());
            for id in &users {
                let _ = kill_process(*id, Signal::KILL);
            }
            Ok(users.is_empty())
        };
        let _ = wait_until("end of those that use the cluster's files", PATIENCE, left);
    }
}

/// The other processes that have files in this directory open. slurmd, slurmstepd and tasks have their
/// logs there.
pub fn users(dir: &Path) -> Vec<Pid> {
    let uses = |process: &Path| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
        links.any(|link| link.starts_with(dir))
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let used = all.filter(|entry| uses(&entry.path()));
    let ids = used.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    ids.filter(|id| *id != getpid()).collect()
}

/// The settings that do not depend on the cluster's place.
const SETTINGS: &str = include_str!("slurm.conf");

/// A program of Slurm.
fn find(name: &str) -> Option<PathBuf> {
    PLACES.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file())
}
