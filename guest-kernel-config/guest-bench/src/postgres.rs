//! PostgreSQL in the guest, from the archive of `pvticket setup guest-disk`.

use std::{
    fs::{self, File},
    io,
    os::unix::{fs::lchown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

/// The directory with one subdirectory per version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The data directory, as initdb created it. It also contains the socket.
const DATA: &str = "/var/lib/postgresql/database";
/// The user that runs the server, which refuses to run as root: nobody.
const USER: u32 = 65_534;
/// The file that receives the server's messages.
const LOG: &str = "/tmp/postgres.log";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A server that accepts connections; terminated when dropped.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    child: Child,
}

impl Server {
    /// Starts the server and waits until it accepts connections.
    pub fn start(shared_buffers_mib: usize, connections: usize) -> io::Result<Self> {
        let programs = programs()?;
        chown_all(USER, Path::new(DATA))?;
        let child = command(&programs, "postgres")
            .args(["-D", DATA, "-k", DATA])
            .args(["-c", &format!("shared_buffers={shared_buffers_mib}MB")])
            .args(["-c", &format!("max_connections={connections}")])
            .stdout(Stdio::null())
            .stderr(File::create(LOG)?)
            .gid(USER)
            .uid(USER)
            .spawn()?;
        let mut server = Self { programs, child };
        while !server.client("pg_isready").arg("--quiet").status()?.success() {
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!(
                    "postgres ended ({status}): {}",
                    last_messages()
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(server)
    }

    /// A command for a client program that connects as the superuser.
    pub fn client(&self, program: &str) -> Command {
        let mut command = command(&self.programs, program);
        command.args(["-h", DATA, "-U", "postgres"]);
        command
    }

    /// Runs pgbench to its end. The error contains its stderr.
    pub fn pgbench(&self, args: &[&str]) -> io::Result<()> {
        let output = self.client("pgbench").args(args).output()?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("pgbench: {}: {}", output.status, stderr.trim())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A "fast shutdown" (SIGINT). There is no remedy for an error.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
            let _ = self.child.wait();
        }
    }
}

fn programs() -> io::Result<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let mut programs = versions.map(|version| version.path().join("bin"));
    programs.find(|programs| programs.join("postgres").is_file()).ok_or_else(|| {
        io::Error::other(
            "there is no PostgreSQL in this guest; `pvticket boot -- bench pgbench` adds the guest \
             disk of `pvticket setup guest-disk` (or the guest has too little memory for it)",
        )
    })
}

/// A command for one of the programs, without stdin and with an empty environment.
fn command(programs: &Path, name: &str) -> Command {
    let mut command = Command::new(programs.join(name));
    command.env_clear().stdin(Stdio::null());
    command
}

fn last_messages() -> String {
    const LINES: usize = 5;
    let log = fs::read_to_string(LOG).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// Changes the owner of a directory and all its contents.
fn chown_all(user: u32, folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            chown_all(user, &entry.path())?;
        } else {
            lchown(entry.path(), Some(user), Some(user))?;
        }
    }
    lchown(folder, Some(user), Some(user))
}
