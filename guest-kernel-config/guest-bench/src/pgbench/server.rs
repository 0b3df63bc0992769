//! The PostgreSQL server: a child process that ends when its value is dropped.

use std::{
    fs::{self, File},
    io,
    os::unix::{fs::lchown, process::CommandExt},
    path::Path,
    process::{Child, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{client::Client, installation::Installation};

/// The user that runs it, because it refuses to run as root: nobody.
const USER: u32 = 65_534;
/// The file that receives its output.
const LOG: &str = "/tmp/postgres.log";
/// Time limit for its start and its end, which suffices even for emulated CPUs.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two polls.
const PAUSE: Duration = Duration::from_millis(20);

/// A server that accepts connections.
#[derive(Debug)]
pub struct Server {
    child: Child,
    ended: bool,
}

impl Server {
    /// Starts it and waits until it accepts connections.
    pub fn start(
        installation: &Installation,
        shared_buffers_mib: u32,
        connections: u32,
    ) -> io::Result<Self> {
        give_to(USER, installation.database())?;
        let database = installation.database();
        let child = installation
            .program("postgres")
            .arg("-D")
            .arg(database)
            .arg("-k")
            .arg(database)
            .arg("-c")
            .arg(format!("shared_buffers={shared_buffers_mib}MB"))
            .arg("-c")
            .arg(format!("max_connections={connections}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(LOG)?)
            .gid(USER)
            .uid(USER)
            .spawn()?;
        let mut server = Self { child, ended: false };
        server.wait_until_ready(Client(installation))?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, client: Client<'_>) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !client.is_ready()? {
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Err(failed(&format!("did not start ({status})")));
            }
            if Instant::now() > end {
                return Err(failed("takes no connections"));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends it; an error if it does not exit with success.
    pub fn stop(mut self) -> io::Result<()> {
        match self.end()? {
            status if status.success() => Ok(()),
            status => Err(failed(&format!("ended with {status}"))),
        }
    }

    /// Asks it to end its clients' connections and itself; kills it after the time limit.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // PostgreSQL calls this "fast shutdown".
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Ok(status);
            }
            if Instant::now() > end {
                self.child.kill()?;
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.ended {
            // Another error is being reported already; this one would come too late.
            let _ = self.end();
        }
    }
}

/// An error with the last lines of the server's log.
fn failed(what: &str) -> io::Error {
    const LINES: usize = 5;
    let log = fs::read_to_string(LOG).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    io::Error::other(format!("postgres {what}: {last}"))
}

/// Changes the owner of a folder and all its contents.
fn give_to(user: u32, folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_to(user, &entry.path())?
        } else {
            lchown(entry.path(), Some(user), Some(user))?
        }
    }
    lchown(folder, Some(user), Some(user))
}
