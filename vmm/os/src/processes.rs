//! Other processes: signals to their groups, and the times of their threads.

use std::{collections::HashMap, fs, path::PathBuf};

use base::{host_counts::ThreadTimes, threads};
use rustix::process::{Pid, Signal, kill_process_group};

/// Sends a signal to the process group of `leader`. Errors are ignored: the group may have exited.
pub fn signal_group(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

/// Scheduler statistics of a process's threads (`/proc/PID/task/*/schedstat`).
#[derive(Debug, Default)]
pub struct ThreadAccounts(HashMap<PathBuf, ThreadTimes>);

impl ThreadAccounts {
    /// Reads the statistics and returns the times since the last reading, for threads present in both. Empty
    /// if the kernel keeps no such statistics.
    pub fn refresh(&mut self, process: u32) -> Vec<ThreadTimes> {
        let account = |thread: PathBuf| {
            let text = fs::read_to_string(thread.join("schedstat")).ok()?;
            Some((thread, ThreadTimes::parse(&text)?))
        };
        self.replace(threads::list(process).into_iter().filter_map(account).collect())
    }

    fn replace(&mut self, now: HashMap<PathBuf, ThreadTimes>) -> Vec<ThreadTimes> {
        let before = std::mem::replace(&mut self.0, now);
        let since =
            |(thread, times): (&PathBuf, &ThreadTimes)| Some(times.since(*before.get(thread)?));
        self.0.iter().filter_map(since).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::Nanos;

    #[test]
    fn times_are_since_the_last_reading() {
        let mut accounts = ThreadAccounts::default();
        let mut waits = |list: &[(&str, u64)]| {
            let times = |waited| ThreadTimes { waited: Nanos(waited), ..ThreadTimes::default() };
            let now = list.iter().map(|(thread, waited)| (thread.into(), times(*waited)));
            let since = accounts.replace(now.collect());
            let mut waits: Vec<u64> = since.iter().map(|times| times.waited.0).collect();
            waits.sort_unstable();
            waits
        };
        assert_eq!(waits(&[("1", 900), ("2", 50)]), [0; 0]);
        assert_eq!(waits(&[("1", 910), ("2", 80), ("3", 7000)]), [10, 30]);
        assert_eq!(waits(&[("3", 7001)]), [1]);
        assert_eq!(waits(&[]), [0; 0]);
    }
}
