//! One worker process, as the run sees it.

use std::{io, process::Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::{mpsc, oneshot},
};

use super::{
    job::{Job, WorkerMessage},
    worker::MOST_TRACE,
};

/// Lines of a worker's errors that are kept: its last words.
const LAST_WORDS: usize = 4;

/// Bytes of one of them that are kept.
const LONGEST_ERROR: u64 = 4 << 10;

/// Bytes of what a worker says in a line, at most: a cell with its trace.
const LONGEST_WORD: u64 = 4 * MOST_TRACE.0.div_ceil(3) + (16 << 20);

/// What a worker reports.
#[derive(Debug)]
pub enum Report {
    /// A word.
    WorkerMessage(WorkerMessage),
    /// It has ended, and so.
    Gone(String),
}

/// A report, and of which hand. It has an end: a worker that says more than is heard waits.
pub type Reports = mpsc::Sender<(usize, Report)>;

/// A worker that cannot be started.
#[derive(Debug, Error)]
pub enum HandError {
    /// The process.
    #[error("cannot start a worker: {0}")]
    Spawn(io::Error),
    /// A pipe of it.
    #[error("a worker has no {0}")]
    Pipe(&'static str),
}

/// A worker at work. Dropped, it is killed.
#[derive(Debug)]
pub struct WorkerHandle {
    stdin: Option<ChildStdin>,
    _kill: oneshot::Sender<()>,
}

impl WorkerHandle {
    /// Starts one; it reports as `number`.
    pub fn start(mut command: Command, number: usize, reports: Reports) -> Result<Self, HandError> {
        // Ctrl-C at the terminal is for us, who tell the workers what to do about it.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(HandError::Spawn)?;
        let stdin = child.stdin.take().ok_or(HandError::Pipe("stdin"))?;
        let (kill, killed) = oneshot::channel();
        tokio::spawn(async move {
            let why = attend(child, number, &reports, killed).await;
            // The run may be over.
            let _ = reports.send((number, Report::Gone(why))).await;
        });
        Ok(Self { stdin: Some(stdin), _kill: kill })
    }

    /// Gives it a cell. One that is gone says so in a report.
    pub async fn give(&mut self, job: &Job) -> serde_json::Result<()> {
        let mut text = serde_json::to_vec(job)?;
        text.push(b'\n');
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(&text).await;
            let _ = stdin.flush().await;
        }
        Ok(())
    }

    /// There is no more for it to do; what it does is aborted.
    pub fn dismiss(&mut self) {
        self.stdin = None;
    }
}

/// Passes on what the worker says until it ends; gives why it did.
async fn attend(
    mut child: Child,
    number: usize,
    reports: &Reports,
    killed: oneshot::Receiver<()>,
) -> String {
    let group = child.id();
    let stdout = child.stdout.take();
    let last_words = tokio::spawn(last_words(child.stderr.take()));
    tokio::select! {
        unclear = listen(stdout, number, reports) => {
            if unclear.is_some() {
                // It waits for a job that it will not get.
                kill(group);
            }
            let how = match child.wait().await {
                Ok(status) => format!("the worker ended with {status}"),
                Err(error) => format!("the worker is lost: {error}"),
            };
            // Whoever it left behind would keep its errors open.
            kill(group);
            let said = last_words.await.unwrap_or_default();
            [Some(how), unclear, said].into_iter().flatten().collect::<Vec<_>>().join("; ")
        }
        _ = killed => {
            kill(group);
            let _ = child.wait().await;
            "the worker was killed".into()
        }
    }
}

/// Kills it and its own: an emulated host is a process of its own.
fn kill(group: Option<u32>) {
    let group = group.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(group) = group {
        // It may be gone.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Until its output ends, or says what cannot be understood.
async fn listen(
    stdout: Option<tokio::process::ChildStdout>,
    number: usize,
    reports: &Reports,
) -> Option<String> {
    let mut output = BufReader::new(stdout?);
    while let Some((line, is_whole)) = next_line(&mut output, LONGEST_WORD).await {
        if !is_whole {
            return Some(format!("it said more than {LONGEST_WORD} bytes in a line"));
        }
        match serde_json::from_slice(&line) {
            Ok(word) => drop(reports.send((number, Report::WorkerMessage(word))).await),
            Err(error) => return Some(format!("it said what is no word of ours: {error}")),
        }
    }
    None
}

async fn last_words(stderr: Option<tokio::process::ChildStderr>) -> Option<String> {
    let mut errors = BufReader::new(stderr?);
    let mut last = std::collections::VecDeque::new();
    while let Some((line, _)) = next_line(&mut errors, LONGEST_ERROR).await {
        if last.len() == LAST_WORDS {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
    }
    let last: Vec<String> = last.into();
    (!last.is_empty()).then(|| last.join("; "))
}

/// The next line, or what there is of it up to `longest` bytes: then it is not whole, and what is
/// left of it comes as the next. None at the end, or when it cannot be read.
async fn next_line(
    from: &mut (impl AsyncBufRead + Unpin),
    longest: u64,
) -> Option<(Vec<u8>, bool)> {
    let mut line = Vec::new();
    let count = from.take(longest).read_until(b'\n', &mut line).await.ok()?;
    let is_whole = line.last() == Some(&b'\n') || (count as u64) < longest;
    (count > 0).then_some((line, is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lines = |text: &'static str| {
            runtime.block_on(async {
                let mut from = BufReader::new(text.as_bytes());
                let mut found = Vec::new();
                while let Some((line, is_whole)) = next_line(&mut from, 4).await {
                    found.push((String::from_utf8(line).unwrap(), is_whole));
                }
                found
            })
        };
        let whole = |text: &str| (text.to_owned(), true);
        assert_eq!(lines("ab\nabc\na"), [whole("ab\n"), whole("abc\n"), whole("a")]);
        assert_eq!(lines("abcdef\n"), [("abcd".to_owned(), false), whole("ef\n")]);
        assert_eq!(lines(""), []);
    }
}
