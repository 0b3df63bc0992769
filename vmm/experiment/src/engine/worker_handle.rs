//! The run's side of a worker process.

use std::{io, os::unix::process::ExitStatusExt, process::Stdio};

use rustix::process::Signal;
use thiserror::Error;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::{mpsc, oneshot},
};

use super::{
    job::{Job, WorkerMessage},
    run_jobs::MAX_TRACE,
};
use os::{memory::Memory, processes::signal_group};
use study::point::HostKernel;

/// Number of a worker's last stderr lines that are kept.
const STDERR_LINES: usize = 4;

/// Maximum length of such a line, in bytes; longer lines are split.
const MAX_STDERR_LINE: u64 = 4 << 10;

/// Maximum length of a worker's message, in bytes: a cell with its trace.
const MAX_MESSAGE: u64 = 4 * MAX_TRACE.0.div_ceil(3) + (16 << 20);

/// An event of a worker.
#[derive(Debug)]
pub enum WorkerReport {
    /// The worker sent a message.
    Message(WorkerMessage),
    /// The worker has ended, for this reason.
    Exited(String),
}

/// The job that a worker serves, and the kernel of its host.
pub type WorkerId = (usize, Option<HostKernel>);

/// Reports with the worker's id. The channel is bounded: a worker that sends faster than
/// the run reads has to wait.
pub type Reports = mpsc::Sender<(WorkerId, WorkerReport)>;

/// Errors when starting a worker.
#[derive(Debug, Error)]
pub enum StartError {
    /// The process cannot be spawned.
    #[error("cannot start a worker")]
    Spawn(#[source] io::Error),
    /// One of its pipes is missing.
    #[error("a worker has no {0}")]
    Pipe(&'static str),
}

/// A running worker. Dropping the handle kills it.
#[derive(Debug)]
pub struct WorkerHandle {
    stdin: Option<ChildStdin>,
    _kill: oneshot::Sender<()>,
}

impl WorkerHandle {
    /// Starts a worker, which reports under `index`.
    pub fn start(
        mut command: Command,
        index: WorkerId,
        reports: Reports,
    ) -> Result<Self, StartError> {
        // Ctrl-C at the terminal is for us; we then ask the workers to abort.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(StartError::Spawn)?;
        let stdin = child.stdin.take().ok_or(StartError::Pipe("stdin"))?;
        let (kill, killed) = oneshot::channel();
        tokio::spawn(async move {
            let reason = supervise(child, index, &reports, killed).await;
            // The run may have ended.
            let _ = reports.send((index, WorkerReport::Exited(reason))).await;
        });
        Ok(Self { stdin: Some(stdin), _kill: kill })
    }

    /// Passes a cell to the worker. If the worker has exited, a report follows.
    pub async fn send(&mut self, job: &Job) -> serde_json::Result<()> {
        let mut text = serde_json::to_vec(job)?;
        text.push(b'\n');
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(&text).await;
            let _ = stdin.flush().await;
        }
        Ok(())
    }

    /// Closes the worker's input: the current cell is aborted, and the worker exits.
    pub fn close(&mut self) {
        self.stdin = None;
    }
}

/// Forwards the worker's messages until it ends. Returns the reason for its end.
async fn supervise(
    mut child: Child,
    index: WorkerId,
    reports: &Reports,
    killed: oneshot::Receiver<()>,
) -> String {
    let group = child.id();
    let stdout = child.stdout.take();
    let stderr_tail = tokio::spawn(stderr_tail(child.stderr.take()));
    tokio::select! {
        fault = listen(stdout, index, reports) => {
            if fault.is_some() {
                // The worker waits for a job that will never come.
                kill(group);
            }
            let how = match child.wait().await {
                // Killed by a kernel out of memory, or by a user, but not by us.
                Ok(status) if fault.is_none() && status.signal() == Some(Signal::KILL.as_raw()) => {
                    let cause = Memory::current().kill_reason();
                    format!("the worker ended with {status}, {cause}")
                }
                Ok(status) => format!("the worker ended with {status}"),
                Err(error) => format!("the worker is lost: {error}"),
            };
            // Children left behind would keep the worker's stderr open.
            kill(group);
            let stderr = stderr_tail.await.unwrap_or_default();
            [Some(how), fault, stderr].into_iter().flatten().collect::<Vec<_>>().join("; ")
        }
        _ = killed => {
            kill(group);
            let _ = child.wait().await;
            "the worker was killed".into()
        }
    }
}

/// Kills the worker and its children, such as the QEMU of an emulated host.
fn kill(group: Option<u32>) {
    if let Some(group) = group {
        signal_group(group, Signal::KILL);
    }
}

/// Reads messages until the output ends or a message is invalid. Returns the fault, if any.
async fn listen(
    stdout: Option<tokio::process::ChildStdout>,
    index: WorkerId,
    reports: &Reports,
) -> Option<String> {
    let mut output = BufReader::new(stdout?);
    while let Some((line, is_complete)) = next_line(&mut output, MAX_MESSAGE).await {
        if !is_complete {
            return Some(format!("it sent a line longer than {MAX_MESSAGE} bytes"));
        }
        match serde_json::from_slice(&line) {
            Ok(message) => drop(reports.send((index, WorkerReport::Message(message))).await),
            Err(error) => return Some(format!("it sent an invalid message: {error}")),
        }
    }
    None
}

async fn stderr_tail(stderr: Option<tokio::process::ChildStderr>) -> Option<String> {
    let mut errors = BufReader::new(stderr?);
    let mut last = std::collections::VecDeque::new();
    while let Some((line, _)) = next_line(&mut errors, MAX_STDERR_LINE).await {
        if last.len() == STDERR_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
    }
    let last: Vec<String> = last.into();
    (!last.is_empty()).then(|| last.join("; "))
}

/// Reads the next line, truncated at `limit` bytes, and whether it is complete. The rest of a
/// truncated line is read as the next line. None at the end, or on a read error.
async fn next_line(from: &mut (impl AsyncBufRead + Unpin), limit: u64) -> Option<(Vec<u8>, bool)> {
    let mut line = Vec::new();
    let count = from.take(limit).read_until(b'\n', &mut line).await.ok()?;
    let is_complete = line.last() == Some(&b'\n') || (count as u64) < limit;
    (count > 0).then_some((line, is_complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_truncated() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lines = |text: &'static str| {
            runtime.block_on(async {
                let mut from = BufReader::new(text.as_bytes());
                let mut lines_read = Vec::new();
                while let Some((line, is_complete)) = next_line(&mut from, 4).await {
                    lines_read.push((String::from_utf8(line).unwrap(), is_complete));
                }
                lines_read
            })
        };
        let complete = |text: &str| (text.to_owned(), true);
        assert_eq!(lines("ab\nabc\na"), [complete("ab\n"), complete("abc\n"), complete("a")]);
        assert_eq!(lines("abcdef\n"), [("abcd".to_owned(), false), complete("ef\n")]);
        assert_eq!(lines(""), []);
    }
}
