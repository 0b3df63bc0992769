//! How long a process was ready to run without getting a CPU of a busy system.

use std::{collections::HashMap, fs, path::PathBuf, time::Duration};

use base::threads;

/// Reads the kernel's account of a process's threads (`/proc/PID/task/*/schedstat`, whose second
/// number is the time spent waiting on a run queue, in nanoseconds;
/// Documentation/scheduler/sched-stats.rst).
#[derive(Debug, Default)]
pub struct Starvation {
    waited: HashMap<String, u64>,
}

impl Starvation {
    /// The longest wait of any of its threads since the last call. Zero if the kernel keeps no
    /// account.
    pub fn since_last(&mut self, process: u32) -> Duration {
        let account = |thread: PathBuf| {
            let account = fs::read_to_string(thread.join("schedstat")).ok()?;
            Some((thread.file_name()?.to_str()?.to_owned(), waited(&account)?))
        };
        self.longest(threads::of(process).into_iter().filter_map(account).collect())
    }

    fn longest(&mut self, now: HashMap<String, u64>) -> Duration {
        let before = std::mem::replace(&mut self.waited, now);
        let more = self.waited.iter().map(|(thread, waited)| {
            waited.saturating_sub(before.get(thread).copied().unwrap_or(*waited))
        });
        Duration::from_nanos(more.max().unwrap_or(0))
    }
}

fn waited(account: &str) -> Option<u64> {
    account.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(list: &[(&str, u64)]) -> HashMap<String, u64> {
        list.iter().map(|&(thread, waited)| (thread.to_owned(), waited)).collect()
    }

    #[test]
    fn the_thread_that_waited_longest_counts() {
        let mut starvation = Starvation::default();
        assert_eq!(starvation.longest(accounts(&[("1", 900), ("2", 50)])), Duration::ZERO);
        let second = starvation.longest(accounts(&[("1", 910), ("2", 80), ("3", 7000)]));
        assert_eq!(second, Duration::from_nanos(30));
        assert_eq!(starvation.longest(accounts(&[("3", 7001)])), Duration::from_nanos(1));
        assert_eq!(starvation.longest(HashMap::new()), Duration::ZERO);
        assert_eq!(waited("123 456 7\n"), Some(456));
        assert_eq!(waited(""), None);
    }
}
