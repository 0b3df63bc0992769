//! Runs the command as a child process that executes this binary, and relays its streams through the ports.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStringExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
};

use rustix::process::Signal;

use super::{
    super::wire::{self, AgentJob, ErrandEnd, FromAgent, OUTPUT_PIECE},
    AgentError, ControlSender,
    beat::Pulse,
    context,
};
use os::processes::signal_group;

/// The ports of the command's streams.
#[derive(Debug)]
pub struct StreamPorts {
    /// The host sends input for the command here.
    pub stdin: File,
    pub stdout: File,
    pub stderr: File,
}

/// Runs the command to its end, and sends its result files and exit status over `line`.
pub fn run(
    job: &AgentJob,
    start: impl FnOnce(&mut Command) -> io::Result<Child>,
    ports: StreamPorts,
    line: &ControlSender,
    pulse: &Arc<Pulse>,
) -> Result<(), AgentError> {
    let mut child = start(&mut command(job)).map_err(context("cannot start the command"))?;
    pulse.set_child(child.id());
    let carriers = relay(&mut child, ports, pulse).map_err(context("streams"))?;
    let status = child.wait().map_err(context("cannot wait for the command"))?;
    // Processes left running would keep the output open forever.
    signal_group(child.id(), Signal::KILL);
    for carrier in carriers {
        match carrier.join() {
            Ok(carried) => carried.map_err(context("output"))?,
            Err(_) => return Err("a stream's thread failed".into()),
        }
    }
    for (index, path) in job.files_out.iter().enumerate() {
        send_result(index as u32, path, line).map_err(context("control port"))?;
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    let done = ErrandEnd { status: code.unwrap_or(1), oom_kills: oom_kills() };
    line.send(&FromAgent::Done(done)).map_err(context("control port"))
}

fn command(job: &AgentJob) -> Command {
    let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("pvticket")
        .args(job.args.iter().map(text))
        .env_clear()
        .envs([("PATH", "/bin:/sbin:/usr/bin:/usr/sbin"), ("HOME", "/root"), ("TMPDIR", "/tmp")])
        .envs(job.env.iter().map(|(name, value)| (text(name), text(value))))
        .current_dir("/tmp")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

type Carrier = JoinHandle<io::Result<()>>;

/// Starts one thread per stream. Returns the output threads, to be joined.
fn relay(child: &mut Child, ports: StreamPorts, pulse: &Arc<Pulse>) -> io::Result<Vec<Carrier>> {
    if let Some(to) = child.stdin.take() {
        let pulse = pulse.clone();
        spawn_named("stdin", move || carry_in(ports.stdin, to, &pulse))?;
    }
    let mut carriers = Vec::new();
    if let Some(from) = child.stdout.take() {
        let pulse = pulse.clone();
        carriers.push(spawn_named("stdout", move || carry_out(from, ports.stdout, 1, &pulse))?);
    }
    if let Some(from) = child.stderr.take() {
        let pulse = pulse.clone();
        carriers.push(spawn_named("stderr", move || carry_out(from, ports.stderr, 2, &pulse))?);
    }
    Ok(carriers)
}

fn spawn_named(
    name: &str,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<Carrier> {
    thread::Builder::new().name(name.into()).spawn(work)
}

fn carry_in(mut port: File, to: impl Write, pulse: &Pulse) -> io::Result<()> {
    let mut to = Some(to);
    while let Some(bytes) = wire::read_frame(&mut port)? {
        if bytes.is_empty() {
            return Ok(());
        }
        // Input that the command does not read is consumed and dropped.
        if to.as_mut().is_some_and(|to| to.write_all(&bytes).is_err()) {
            to = None;
        }
        pulse.count_moved(0, bytes.len());
    }
    Ok(())
}

fn carry_out(mut from: impl Read, mut port: File, stream: usize, pulse: &Pulse) -> io::Result<()> {
    let mut buffer = vec![0; OUTPUT_PIECE];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return wire::write_frame(&mut port, b""),
            Ok(count) => {
                wire::write_frame(&mut port, &buffer[..count])?;
                pulse.count_moved(stream, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn send_result(index: u32, path: &[u8], line: &ControlSender) -> io::Result<()> {
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    let failed = |error: io::Error| {
        let error = format!("{}: {error}", path.display());
        line.send(&FromAgent::FileFailed { index, error })
    };
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) => return failed(error),
    };
    let mut buffer = vec![0; OUTPUT_PIECE - 8];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return line.send(&FromAgent::FileEnd { index }),
            Ok(count) => {
                line.send(&FromAgent::Piece { index, bytes: buffer[..count].to_vec() })?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return failed(error),
        }
    }
}

/// Returns the number of processes this kernel has killed for lack of memory.
fn oom_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
