//! The threads of a process.

use std::{fmt::Display, fs, os::unix::fs::MetadataExt, path::PathBuf};

/// Attempts at a complete listing before an incomplete one is accepted.
const TRIES: u32 = 100;

/// Lists the directories of a process's threads in `/proc`; empty if the process has exited.
///
/// A listing of `task` ends early if a thread exits at that time (`next_tid` in Linux's fs/proc/base.c). It is
/// complete if it has as many threads as the process had before and after.
pub fn list(process: impl Display) -> Vec<PathBuf> {
    let folder = format!("/proc/{process}/task");
    // Number of links other than `.` and `..` (proc_task_getattr).
    let count = || fs::metadata(&folder).map_or(0, |folder| folder.nlink().saturating_sub(2));
    let list = || -> Vec<PathBuf> {
        fs::read_dir(&folder).into_iter().flatten().flatten().map(|task| task.path()).collect()
    };
    for _ in 0..TRIES {
        let (before, threads, after) = (count(), list(), count());
        if before == after && threads.len() as u64 == after {
            return threads;
        }
    }
    list()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Barrier, mpsc},
        thread,
    };

    use super::*;

    /// Regression: 6 % of plain listings missed a thread created later than threads that exited.
    #[test]
    fn exits_during_the_reading_hide_no_thread() {
        for _ in 0..300 {
            let gate = Arc::new(Barrier::new(9));
            let exits = |gate: Arc<Barrier>| thread::spawn(move || _ = gate.wait());
            let older: Vec<_> = (0..8).map(|_| exits(gate.clone())).collect();
            let (send, name) = mpsc::channel();
            let (keep, exit) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                send.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
                let _ = exit.recv();
            });
            let name = name.recv().unwrap();
            gate.wait();
            for _ in 0..20 {
                let threads = list("self");
                let is_listed = threads.iter().any(|thread| thread.file_name() == name.file_name());
                assert!(is_listed, "{name:?} is not in {threads:?}");
            }
            drop(keep);
            thread.join().unwrap();
            older.into_iter().for_each(|thread| thread.join().unwrap());
        }
    }

    #[test]
    fn exited_processes_have_no_threads() {
        assert!(list("self/no").is_empty());
    }
}
