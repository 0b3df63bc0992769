//! Measures how long a process took for something, without the time for which other work of the host
//! kept it from a CPU: on a quiet machine that is the time on the clock.
//!
//! The kernel counts for each thread how long it was ready and waited in a run queue
//! (`/proc/PID/task/TID/schedstat`, scheduler/sched-stats.rst); it counts a wait when it is over. A moment at
//! which any thread of the process waited does not count.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Pid;

use super::{children, threads};

/// The observing thread: while it waits, it does not see that the process has done it.
const OWN: &str = "/proc/thread-self";

/// A stopwatch for a process with its descendants.
#[derive(Debug)]
pub struct Stopwatch {
    process: Pid,
    began: Instant,
    waited: HashMap<PathBuf, Duration>,
    /// The time of the last look.
    seen: Duration,
    waits: Waits,
}

impl Stopwatch {
    /// Starts it.
    pub fn start(process: Pid) -> Self {
        let (began, waited) = (Instant::now(), accounts(process));
        Self { process, began, waited, seen: Duration::ZERO, waits: Waits::default() }
    }

    /// To be called every few milliseconds, and at last while the process is there still.
    pub fn look(&mut self) {
        let now = accounts(self.process);
        self.seen = self.began.elapsed();
        self.waits.add(longest(&self.waited, &now), self.seen);
        // Threads that have ended are not forgotten: they do not begin again.
        self.waited.extend(now);
    }

    /// The time on the clock, from the start to now.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The time from the start to the last look, without the waits.
    pub fn took(&self) -> Duration {
        self.seen.saturating_sub(self.waits.sum())
    }
}

/// Times in which a thread waited: begin and end of each, in order, apart from each other.
#[derive(Debug, Default)]
struct Waits(Vec<(Duration, Duration)>);

impl Waits {
    /// Adds a wait of this length that is over at `end`, which is not before any earlier end.
    fn add(&mut self, length: Duration, end: Duration) {
        let mut begin = end.saturating_sub(length);
        while let Some((other, _)) = self.0.pop_if(|(_, other)| *other >= begin) {
            begin = begin.min(other);
        }
        self.0.push((begin, end));
    }

    fn sum(&self) -> Duration {
        self.0.iter().map(|(begin, end)| *end - *begin).sum()
    }
}

/// By how much the account of the thread that waited longest has grown. All that a new one has is new.
fn longest(before: &HashMap<PathBuf, Duration>, now: &HashMap<PathBuf, Duration>) -> Duration {
    let grown = now.iter().map(|(thread, waited)| {
        waited.saturating_sub(before.get(thread).copied().unwrap_or_default())
    });
    grown.max().unwrap_or_default()
}

/// How long each thread of the process and its descendants has waited so far, in nanoseconds, and that of
/// the caller.
fn accounts(process: Pid) -> HashMap<PathBuf, Duration> {
    let mut found = HashMap::new();
    let mut processes = vec![process];
    while let Some(process) = processes.pop() {
        processes.extend(children(process));
        for thread in threads(process) {
            found.extend(ThreadTimes::of(&thread).map(|times| (thread, times.waited)));
        }
    }
    let own = Path::new(OWN);
    found.extend(ThreadTimes::of(own).map(|times| (own.to_owned(), times.waited)));
    found
}

/// A thread's account.
#[derive(Debug, Clone, Copy)]
pub struct ThreadTimes {
    /// How long it has had a CPU.
    pub ran: Duration,
    /// How long it was ready and had none.
    pub waited: Duration,
}

impl ThreadTimes {
    /// None: the thread is gone, or the kernel does not count.
    fn of(thread: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(thread.join("schedstat")).ok()?)
    }

    fn parse(schedstat: &str) -> Option<Self> {
        let mut nanos = schedstat.split_whitespace().map_while(|word| word.parse().ok());
        let mut next = || nanos.next().map(Duration::from_nanos);
        Some(Self { ran: next()?, waited: next()? })
    }
}

/// The accounts of a process's threads whose names begin with `name`, the oldest first.
pub fn times_by_name(process: Pid, name: &str) -> Vec<ThreadTimes> {
    let id = |thread: &Path| thread.file_name()?.to_str()?.parse::<u32>().ok();
    let mut found: Vec<_> = threads(process)
        .filter(|thread| {
            fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.starts_with(name))
        })
        .filter_map(|thread| Some((id(&thread)?, ThreadTimes::of(&thread)?)))
        .collect();
    found.sort_unstable_by_key(|(id, _)| *id);
    found.into_iter().map(|(_, times)| times).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::process::getpid;

    use super::*;

    fn waits(list: &[(&str, u64)]) -> HashMap<PathBuf, Duration> {
        let wait = |(thread, nanos): &(&str, u64)| (thread.into(), Duration::from_nanos(*nanos));
        list.iter().map(wait).collect()
    }

    #[test]
    fn the_thread_that_waited_longest_counts() {
        let before = waits(&[("1", 900), ("2", 50)]);
        let nanos = |now: &[(&str, u64)]| longest(&before, &waits(now)).as_nanos();
        assert_eq!(nanos(&[("1", 910), ("2", 80)]), 30);
        assert_eq!(nanos(&[("1", 910), ("3", 70)]), 70, "it began meanwhile");
        assert_eq!(nanos(&[("1", 900)]), 0);
        assert_eq!(nanos(&[]), 0);
        let waited = |text| ThreadTimes::parse(text).map(|times| times.waited.as_nanos());
        assert_eq!((waited("123 456 7\n"), waited("")), (Some(456), None));
    }

    #[test]
    fn sleep_is_no_delay() {
        let mut watch = Stopwatch::start(getpid());
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(5));
            watch.look();
        }
        let (took, waited) = (watch.took(), watch.waits.sum());
        assert!(took + waited >= Duration::from_millis(50), "{took:?}, {waited:?}");
        assert!(took <= watch.elapsed());
        assert!(!times_by_name(getpid(), "").is_empty());
    }

    #[test]
    fn waits_at_the_same_time_count_once() {
        let sum = |waits: &[(u64, u64)]| {
            let mut all = Waits::default();
            let millis = Duration::from_millis;
            waits.iter().for_each(|(length, end)| all.add(millis(*length), millis(*end)));
            all.sum().as_millis()
        };
        assert_eq!(sum(&[(3, 5), (2, 10)]), 5);
        assert_eq!(sum(&[(3, 5), (2, 10), (9, 15)]), 3 + 9, "2 to 5 and 6 to 15");
        assert_eq!(sum(&[(3, 5), (100, 10)]), 10, "no more than there was");
        assert_eq!(sum(&[(0, 5), (0, 10)]), 0);
    }
}
