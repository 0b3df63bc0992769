//! Measures how long a process took for an operation, excluding the time in which other load on the host kept
//! it from a CPU. On a quiet machine that is wall-clock time.
//!
//! The kernel counts for each thread how long it was runnable and waited in a run queue
//! (`/proc/PID/task/TID/schedstat`, scheduler/sched-stats.rst). It adds a wait when the wait ends. Time in
//! which any thread of the process waited does not count.
//!
//! An exiting process waits for kernel threads, too: KVM destroys a VM by `synchronize_srcu` and
//! `flush_workqueue`, and with 16 busy threads on two CPUs the kworkers of both were runnable without a CPU
//! for up to 6 s. While a thread of the process is in uninterruptible sleep, time in which any kernel thread
//! waited does not count either.

use std::{collections::HashMap, time::Instant};

use super::{
    children,
    proc::{folder, status},
    threads,
};
use crate::prelude::*;

/// The observing thread: while it waits for a CPU, it cannot notice that the process is done.
const OBSERVER: &str = "/proc/thread-self";

/// `kthreadd`, the parent of all kernel threads; absent in a PID namespace.
const KERNEL: i32 = 2;

/// Wait time of each thread.
type Accounts = HashMap<PathBuf, Duration>;

/// A stopwatch for a process and its descendants.
#[derive(Debug)]
pub struct Stopwatch {
    process: Pid,
    began: Instant,
    waited: Accounts,
    kernel: KernelWaits,
    /// Time of the last sample.
    sampled_at: Duration,
    waits: Waits,
}

impl Stopwatch {
    pub fn start(process: Pid) -> Self {
        let (began, waited) = (Instant::now(), accounts(process));
        let (kernel, waits) = (KernelWaits::default(), Waits::default());
        Self { process, began, waited, kernel, sampled_at: Duration::ZERO, waits }
    }

    /// Takes a sample. To be called every few milliseconds, the last time while the process still exists.
    pub fn sample(&mut self) {
        let now = accounts(self.process);
        self.sampled_at = self.began.elapsed();
        self.waits.add(largest_growth(&self.waited, &now), self.sampled_at);
        // Keeps the accounts of threads that have ended.
        self.waited.extend(now);
        let is_blocked = threads(self.process).any(|thread| is_blocked(&thread));
        let length = self.kernel.sample(is_blocked, self.sampled_at, kernel_accounts);
        self.waits.add(length, self.sampled_at);
    }

    /// Wall-clock time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Time from the start to the last sample, without the waits.
    pub fn net(&self) -> Duration {
        self.sampled_at.saturating_sub(self.waits.sum())
    }
}

/// Waits of kernel threads while a thread of the process is blocked.
#[derive(Debug, Default)]
struct KernelWaits(Option<Blocked>);

#[derive(Debug)]
struct Blocked {
    since: Duration,
    waited: Accounts,
}

impl KernelWaits {
    /// Returns the longest wait that ended since the last sample if a thread was blocked then, but at most
    /// the time since that thread blocked. Calls `accounts` only if a thread is or was blocked.
    fn sample(
        &mut self,
        is_blocked: bool,
        now: Duration,
        accounts: impl FnOnce() -> Accounts,
    ) -> Duration {
        let before = self.0.take();
        if before.is_none() && !is_blocked {
            return Duration::ZERO;
        }
        let waited = accounts();
        let since = before.as_ref().map_or(now, |before| before.since);
        let length =
            before.map(|before| largest_growth(&before.waited, &waited)).unwrap_or_default();
        self.0 = is_blocked.then_some(Blocked { since, waited });
        length.min(now.saturating_sub(since))
    }
}

/// Times in which a thread waited: the start and end of each, sorted and disjoint.
#[derive(Debug, Default)]
struct Waits(Vec<(Duration, Duration)>);

impl Waits {
    /// Adds a wait of this length that ended at `end`, which is not before any earlier end.
    fn add(&mut self, length: Duration, end: Duration) {
        let mut begin = end.saturating_sub(length);
        while let Some((earlier, _)) = self.0.pop_if(|(_, earlier)| *earlier >= begin) {
            begin = begin.min(earlier);
        }
        self.0.push((begin, end));
    }

    fn sum(&self) -> Duration {
        self.0.iter().map(|(begin, end)| *end - *begin).sum()
    }
}

/// Returns the largest growth of any thread's account. A new thread's account counts in full.
fn largest_growth(before: &Accounts, now: &Accounts) -> Duration {
    let grown = now.iter().map(|(thread, waited)| {
        waited.saturating_sub(before.get(thread).copied().unwrap_or_default())
    });
    grown.max().unwrap_or_default()
}

/// Returns how long each thread of the process and its descendants, and the caller, has waited so far.
fn accounts(process: Pid) -> Accounts {
    let mut times = HashMap::new();
    let mut processes = vec![process];
    while let Some(process) = processes.pop() {
        processes.extend(children(process));
        for thread in threads(process) {
            times.extend(ThreadTimes::read(&thread).map(|times| (thread, times.waited)));
        }
    }
    let observer = Path::new(OBSERVER);
    times.extend(ThreadTimes::read(observer).map(|times| (observer.to_owned(), times.waited)));
    times
}

/// Returns how long each kernel thread has waited so far.
fn kernel_accounts() -> Accounts {
    let threads = Pid::from_raw(KERNEL).map(children).unwrap_or_default().into_iter().map(folder);
    threads
        .filter_map(|thread| ThreadTimes::read(&thread).map(|times| (thread, times.waited)))
        .collect()
}

/// Whether the thread is in uninterruptible sleep (state D, proc_pid_status(5)).
fn is_blocked(thread: &Path) -> bool {
    status(thread, "State:").is_some_and(|state| state.starts_with('D'))
}

/// A thread's account.
#[derive(Debug, Clone, Copy)]
pub struct ThreadTimes {
    /// Time on a CPU.
    pub ran: Duration,
    /// Time in which it was runnable without a CPU.
    pub waited: Duration,
}

impl ThreadTimes {
    /// None if the thread has exited or the kernel does not count.
    fn read(thread: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(thread.join("schedstat")).ok()?)
    }

    fn parse(schedstat: &str) -> Option<Self> {
        let mut nanos = schedstat.split_whitespace().map_while(|word| word.parse().ok());
        let mut next = || nanos.next().map(Duration::from_nanos);
        Some(Self { ran: next()?, waited: next()? })
    }
}

/// Returns the accounts of a process's threads whose names begin with `name`, by thread id.
pub fn times_by_name(process: Pid, name: &str) -> Vec<ThreadTimes> {
    let id = |thread: &Path| thread.file_name()?.to_str()?.parse::<u32>().ok();
    let mut times: Vec<_> = threads(process)
        .filter(|thread| {
            fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.starts_with(name))
        })
        .filter_map(|thread| Some((id(&thread)?, ThreadTimes::read(&thread)?)))
        .collect();
    times.sort_unstable_by_key(|(id, _)| *id);
    times.into_iter().map(|(_, times)| times).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::process::getpid;

    use super::*;

    fn waits(list: &[(&str, u64)]) -> Accounts {
        let wait = |(thread, nanos): &(&str, u64)| (thread.into(), Duration::from_nanos(*nanos));
        list.iter().map(wait).collect()
    }

    #[test]
    fn the_thread_that_waited_longest_counts() {
        let before = waits(&[("1", 900), ("2", 50)]);
        let nanos = |now: &[(&str, u64)]| largest_growth(&before, &waits(now)).as_nanos();
        assert_eq!(nanos(&[("1", 910), ("2", 80)]), 30);
        assert_eq!(nanos(&[("1", 910), ("3", 70)]), 70, "it began meanwhile");
        assert_eq!(nanos(&[("1", 900)]), 0);
        assert_eq!(nanos(&[]), 0);
        let waited = |text| ThreadTimes::parse(text).map(|times| times.waited.as_nanos());
        assert_eq!((waited("123 456 7\n"), waited("")), (Some(456), None));
    }

    #[test]
    fn waits_of_the_kernel_count_while_a_thread_is_blocked() {
        let mut kernel = KernelWaits::default();
        let rows = [
            // Whether a thread is blocked, the time, the sum of the kernel's waits, the length that counts.
            (false, 10, 100, 0),
            (true, 20, 200, 0),
            (true, 30, 200, 0),
            (true, 50, 225, 25),
            (true, 60, 1000, 40),
            (false, 70, 1007, 7),
            (false, 80, 2000, 0),
            (true, 90, 2000, 0),
            (false, 95, 2003, 3),
        ];
        for (is_blocked, at, sum, length) in rows {
            let accounts = || waits(&[("kworker/0:1", sum)]);
            let (at, length) = (Duration::from_nanos(at), Duration::from_nanos(length));
            assert_eq!(kernel.sample(is_blocked, at, accounts), length, "at {at:?}");
        }
    }

    #[test]
    fn sleep_is_no_delay() {
        let mut watch = Stopwatch::start(getpid());
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(5));
            watch.sample();
        }
        let (took, waited) = (watch.net(), watch.waits.sum());
        assert!(took + waited >= Duration::from_millis(50), "{took:?}, {waited:?}");
        assert!(took <= watch.elapsed());
        assert!(!times_by_name(getpid(), "").is_empty());
    }

    #[test]
    fn waits_at_the_same_time_count_once() {
        let sum = |waits: &[(u64, u64)]| {
            let mut merged = Waits::default();
            let millis = Duration::from_millis;
            waits.iter().for_each(|(length, end)| merged.add(millis(*length), millis(*end)));
            merged.sum().as_millis()
        };
        assert_eq!(sum(&[(3, 5), (2, 10)]), 5);
        assert_eq!(sum(&[(3, 5), (2, 10), (9, 15)]), 3 + 9, "2 to 5 and 6 to 15");
        assert_eq!(sum(&[(3, 5), (100, 10)]), 10, "no more than there was");
        assert_eq!(sum(&[(0, 5), (0, 10)]), 0);
    }
}
