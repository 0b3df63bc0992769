//! What the host's kernel counts of a machine's vCPUs: its scheduler of their threads, and KVM.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// What the scheduler of a Linux kernel counts of a thread: the fields of `/proc/PID/task/TID/schedstat`
/// (scheduler/sched-stats.rst).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// Time for which it had a CPU.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
    /// Time for which it was ready to run and waited in a run queue.
    #[serde(rename = "waited_ns")]
    pub waited: Nanos,
    /// How often it was given a CPU.
    pub turns: u64,
}

impl ThreadTimes {
    /// Parses the text of the file; None for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        let mut next = || fields.next().flatten();
        Some(Self { ran: Nanos(next()?), waited: Nanos(next()?), turns: next()? })
    }

    /// The counts since an earlier reading.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            ran: self.ran.since(before.ran),
            waited: self.waited.since(before.waited),
            turns: self.turns.saturating_sub(before.turns),
        }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            ran: self.ran.after(other.ran),
            waited: self.waited.after(other.waited),
            turns: self.turns.saturating_add(other.turns),
        }
    }
}

/// KVM's own counts of pauses and yields. None: this KVM does not count it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct YieldCounts {
    /// Exits because a vCPU executed PAUSE in a loop. No mainline KVM on x86 counts them.
    pub pause_exits: Option<u64>,
    /// Yields to another vCPU that the guest asked for (KVM_HC_SCHED_YIELD).
    pub yields_attempted: Option<u64>,
    /// The part of them that reached the other vCPU.
    pub yields_successful: Option<u64>,
}

impl YieldCounts {
    /// Both counts together, where both are known.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Self, merge: fn(u64, u64) -> u64) -> Self {
        let merged = |a: Option<u64>, b: Option<u64>| Some(merge(a?, b?));
        Self {
            pause_exits: merged(self.pause_exits, other.pause_exits),
            yields_attempted: merged(self.yields_attempted, other.yields_attempted),
            yields_successful: merged(self.yields_successful, other.yields_successful),
        }
    }
}

/// Two ticks at the slowest rate that kernels are built with (CONFIG_HZ_100): in a window that is longer, a thread that has
/// a CPU throughout is counted at least once.
const TICKS: Nanos = Nanos::millis(20);

/// The counts of one machine over a time.
///
/// The scheduler adds to a thread's time at the end of its turn and at each tick, and to its waits when it
/// gets a CPU: at both ends of a window up to a tick and one wait are counted in the next one. A thread that waits
/// throughout a window would have waited for none of it: such a wait is found by the thread's state at both ends.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostCounts {
    /// How long that was.
    #[serde(rename = "window_ns")]
    pub window: Nanos,
    /// By vCPU; empty where the host's kernel does not count it.
    pub vcpus: Vec<ThreadTimes>,
    /// Of a reading, by vCPU: had its thread a CPU, or did it wait for one? Empty in what is counted over a time.
    #[serde(skip)]
    pub runnable: Vec<bool>,
    /// KVM's counts, of all vCPUs.
    #[serde(flatten)]
    pub yields: YieldCounts,
}

impl HostCounts {
    /// The counts from an earlier reading, whose `window` began when this one's did, to this one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let window = self.window.since(before.window);
        let pairs = self.vcpus.iter().zip(&before.vcpus).enumerate();
        let counted = pairs.map(|(ix, (after, earlier))| {
            let times = after.since(*earlier);
            let awaits =
                [before, self].iter().all(|reading| reading.runnable.get(ix) == Some(&true));
            if awaits && times == ThreadTimes::default() && window > TICKS {
                ThreadTimes { waited: window, ..times }
            } else {
                times
            }
        });
        Self {
            window,
            vcpus: counted.collect(),
            runnable: Vec::new(),
            yields: self.yields.with(before.yields, u64::saturating_sub),
        }
    }

    /// The counts of two times of the same machine.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let pairs = self.vcpus.iter().zip(&other.vcpus);
        Self {
            window: self.window.after(other.window),
            vcpus: pairs.map(|(a, b)| a.plus(*b)).collect(),
            runnable: Vec::new(),
            yields: self.yields.plus(other.yields),
        }
    }

    /// Share of the window for which each vCPU had a CPU.
    pub fn shares(&self) -> impl Iterator<Item = f64> {
        let window = self.window.0 as f64;
        self.vcpus.iter().filter(move |_| window > 0.0).map(move |vcpu| vcpu.ran.0 as f64 / window)
    }

    /// Sum over its vCPUs.
    pub fn total(&self) -> ThreadTimes {
        self.vcpus.iter().fold(ThreadTimes::default(), |sum, vcpu| sum.plus(*vcpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(ran: u64, waited: u64, turns: u64) -> ThreadTimes {
        ThreadTimes { ran: Nanos(ran), waited: Nanos(waited), turns }
    }

    #[test]
    fn a_schedstat_is_read() {
        assert_eq!(ThreadTimes::parse("538221 3293600 3\n"), Some(times(538_221, 3_293_600, 3)));
        for text in ["", "1 2", "a b c", "1 -2 3"] {
            assert_eq!(ThreadTimes::parse(text), None, "{text:?}");
        }
    }

    /// Regression: a vCPU that the host gave no CPU for a whole window of 300 ms had waited for 0 of it, so that the window
    /// was not marked as starved.
    #[test]
    fn a_thread_that_waits_throughout_a_window_has_waited() {
        let reading = |window, runnable: &[bool]| HostCounts {
            window: Nanos::millis(window),
            vcpus: vec![times(7, 10, 1); runnable.len()],
            runnable: runnable.to_vec(),
            yields: YieldCounts::default(),
        };
        let before = reading(100, &[true, false, true, true]);
        let waited = |counts: &HostCounts| -> Vec<_> {
            counts.vcpus.iter().map(|vcpu| (vcpu.ran, vcpu.waited)).collect()
        };
        let counts = reading(400, &[true, true, false, true]).since(&before);
        let (all, none) = ((Nanos(0), Nanos::millis(300)), (Nanos(0), Nanos(0)));
        assert_eq!(waited(&counts), [all, none, none, all]);
        // In a tick it may have run.
        assert_eq!(waited(&reading(110, &[true; 4]).since(&before)), [none; 4]);
    }

    #[test]
    fn what_is_counted_is_that_of_the_window() {
        let reading = |window, ran, tried| HostCounts {
            window: Nanos(window),
            vcpus: vec![times(ran, 10, 1), times(0, 0, 0)],
            runnable: Vec::new(),
            yields: YieldCounts { yields_attempted: tried, ..YieldCounts::default() },
        };
        let counts = reading(300, 150, Some(9)).since(&reading(100, 50, Some(4)));
        assert_eq!((counts.window, counts.vcpus[0]), (Nanos(200), times(100, 0, 0)));
        assert_eq!(counts.yields.yields_attempted, Some(5));
        assert_eq!(counts.yields.pause_exits, None, "this KVM does not count them");
        assert_eq!(counts.shares().collect::<Vec<_>>(), [0.5, 0.0]);
        let twice = counts.plus(&counts);
        assert_eq!((twice.window, twice.total()), (Nanos(400), times(200, 0, 0)));
        let unknown = reading(1, 1, None).since(&reading(0, 0, Some(1)));
        assert_eq!(unknown.yields.yields_attempted, None);
        assert_eq!(HostCounts::default().shares().count(), 0);
    }
}
