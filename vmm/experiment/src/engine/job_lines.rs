//! Reads the lines of a worker's jobs.

use std::{
    io::{self, BufRead, Read},
    sync::mpsc::{self, Receiver},
    thread,
};

use crate::Interrupt;
use confine::Class;

/// Maximum length of a job's line, in bytes.
pub(super) const LONGEST_JOB: u64 = 1 << 20;

/// Number of jobs that may be queued behind the current one. A run sends one at a time.
const JOBS_AHEAD: usize = 4;

/// The thread that reads jobs cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread that reads jobs")]
pub struct NoReader(#[source] io::Error);

/// Reads the input's lines on a separate thread, so that the end of the input raises `interrupt` at
/// once. A line longer than any job is truncated, and then rejected.
pub(super) fn lines(
    mut input: impl BufRead + Send + 'static,
    interrupt: Interrupt,
) -> Result<Receiver<Vec<u8>>, NoReader> {
    let (send, receive) = mpsc::sync_channel(JOBS_AHEAD);
    let read = move || {
        confine::enter(Class::Jobs);
        while let Some(line) = next_line(&mut input) {
            if send.send(line).is_err() {
                break;
            }
        }
        interrupt.raise();
    };
    thread::Builder::new().spawn(read).map_err(NoReader)?;
    Ok(receive)
}

pub(super) fn next_line(mut input: impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = (&mut input).take(LONGEST_JOB).read_until(b'\n', &mut line);
    read.is_ok_and(|count| count > 0).then_some(line)
}
