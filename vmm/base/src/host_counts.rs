//! The host kernel's counts for a machine's vCPUs: the scheduler's (per thread) and KVM's.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Scheduler statistics of a Linux thread: the fields of `/proc/PID/task/TID/schedstat`
/// (scheduler/sched-stats.rst).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// Time on a CPU.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
    /// Time spent runnable in a run queue.
    #[serde(rename = "waited_ns")]
    pub waited: Nanos,
    /// Number of times the thread was scheduled in.
    #[serde(rename = "turns")]
    pub slices: u64,
}

impl ThreadTimes {
    /// Parses the text of a `schedstat` file; None if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        let mut next = || fields.next().flatten();
        Some(Self { ran: Nanos(next()?), waited: Nanos(next()?), slices: next()? })
    }

    /// Returns the counts since an earlier reading.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            ran: self.ran.since(before.ran),
            waited: self.waited.since(before.waited),
            slices: self.slices.saturating_sub(before.slices),
        }
    }

    /// Returns the sum of the counts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            ran: self.ran.after(other.ran),
            waited: self.waited.after(other.waited),
            slices: self.slices.saturating_add(other.slices),
        }
    }
}

/// KVM's own counts of pauses and yields. A field is None if this KVM does not count it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct YieldCounts {
    /// Exits because a vCPU executed PAUSE in a loop. No mainline KVM on x86 counts them.
    pub pause_exits: Option<u64>,
    /// Yields to another vCPU requested by the guest (KVM_HC_SCHED_YIELD).
    pub yields_attempted: Option<u64>,
    /// Requested yields that reached their target vCPU.
    pub yields_successful: Option<u64>,
}

impl YieldCounts {
    /// Returns the sum of the counts; a field is None if either is unknown.
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

/// Two ticks at the lowest rate that kernels are built with (CONFIG_HZ_100). In a longer window, a thread
/// that runs throughout is accounted at least once.
const TWO_TICKS: Nanos = Nanos::millis(20);

/// Counts of one machine over a window.
///
/// The scheduler updates a thread's run time at each tick and when it is switched out, and its wait time when
/// it gets a CPU: at both ends, up to a tick and one wait are counted in the following window. A wait that
/// lasts throughout a window changes no count and is detected by the thread's state at both ends.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostCounts {
    /// Length of the window.
    #[serde(rename = "window_ns")]
    pub window: Nanos,
    /// Times of each vCPU's thread; empty if the host's kernel does not count them.
    pub vcpus: Vec<ThreadTimes>,
    /// Whether each vCPU's thread was running or runnable at the reading. Empty in counts over a window.
    #[serde(skip)]
    pub runnable: Vec<bool>,
    /// KVM's counts over all vCPUs.
    #[serde(flatten)]
    pub yields: YieldCounts,
}

impl HostCounts {
    /// Returns the counts from `before` to `self`, two readings whose `window`s begin at the same time.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let window = self.window.since(before.window);
        let pairs = self.vcpus.iter().zip(&before.vcpus).enumerate();
        let vcpus = pairs.map(|(ix, (after, earlier))| {
            let times = after.since(*earlier);
            let was_runnable =
                [before, self].iter().all(|reading| reading.runnable.get(ix) == Some(&true));
            if was_runnable && times == ThreadTimes::default() && window > TWO_TICKS {
                ThreadTimes { waited: window, ..times }
            } else {
                times
            }
        });
        Self {
            window,
            vcpus: vcpus.collect(),
            runnable: Vec::new(),
            yields: self.yields.with(before.yields, u64::saturating_sub),
        }
    }

    /// Returns the sum over two windows of the same machine.
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

    /// Returns the share of the window during which each vCPU had a CPU.
    pub fn shares(&self) -> impl Iterator<Item = f64> {
        let window = self.window.0 as f64;
        self.vcpus.iter().filter(move |_| window > 0.0).map(move |vcpu| vcpu.ran.0 as f64 / window)
    }

    /// Returns the sum over all vCPUs.
    pub fn total(&self) -> ThreadTimes {
        self.vcpus.iter().fold(ThreadTimes::default(), |sum, vcpu| sum.plus(*vcpu))
    }
}

/// Reason for a directed yield: KVM asks the host's scheduler to run another vCPU in place of this vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YieldCause {
    /// The vCPU spun: a pause-loop exit.
    Spin,
    /// The vCPU kicked the asked vCPU (`KVM_HC_KICK_CPU`).
    Kick,
    /// The vCPU has sent an IPI to the asked vCPU, which it believes to be preempted (`KVM_HC_SCHED_YIELD`).
    Call,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(ran: u64, waited: u64, slices: u64) -> ThreadTimes {
        ThreadTimes { ran: Nanos(ran), waited: Nanos(waited), slices }
    }

    #[test]
    fn parses_schedstat() {
        assert_eq!(ThreadTimes::parse("538221 3293600 3\n"), Some(times(538_221, 3_293_600, 3)));
        for text in ["", "1 2", "a b c", "1 -2 3"] {
            assert_eq!(ThreadTimes::parse(text), None, "{text:?}");
        }
    }

    /// Regression: a vCPU without a CPU for a whole window of 300 ms had a wait time of 0, so the window was
    /// not marked as starved.
    #[test]
    fn counts_waits_longer_than_the_window() {
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
        let (waited_throughout, none) = ((Nanos(0), Nanos::millis(300)), (Nanos(0), Nanos(0)));
        assert_eq!(waited(&counts), [waited_throughout, none, none, waited_throughout]);
        // Within a tick, a vCPU may run without being accounted.
        assert_eq!(waited(&reading(110, &[true; 4]).since(&before)), [none; 4]);
    }

    #[test]
    fn counts_cover_only_the_window() {
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
