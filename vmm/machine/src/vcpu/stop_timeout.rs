//! Decides whether a thread that was asked to stop is stuck. Pure: times are passed in.
//!
//! On a busy host, a thread may wait long for a CPU, which does not make it stuck. The limit applies to the
//! CPU time that it consumes, and to the time for which it sleeps. The wait for a CPU has a far longer limit:
//! two threads that constantly wake each other have kept other threads of the same priority off a CPU for 3.3
//! s (EEVDF of Linux 6.18). Time without samples, because the whole process was stopped, does not count.

use std::fmt;

use base::units::Nanos;

/// A thread that has not stopped is stuck after this multiple of its limit, even if it only waited for a CPU.
const STARVED_FACTOR: u64 = 15;

/// Maximum time between two samples. After a longer time, the process is assumed to have been stopped.
const MAX_STEP: Nanos = Nanos::millis(500);

/// A sample of a thread's activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadSample {
    /// CPU time since the thread's start.
    pub ran: Nanos,
    /// Whether the thread has or waits for a CPU.
    pub is_runnable: bool,
}

/// Time usage of a thread that did not stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeUsage {
    /// Time since the request to stop.
    pub elapsed: Nanos,
    /// The part of this time during which it had a CPU.
    pub ran: Nanos,
    /// Whether the thread waits for a CPU from the host. Otherwise it sleeps, or its CPU time exceeds the limit.
    pub is_starved: bool,
}

/// Formatted to follow the action that the thread did not complete.
impl fmt::Display for TimeUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (elapsed, ran) = (self.elapsed.seconds(), self.ran.seconds());
        write!(f, "within {elapsed:.1} s ({ran:.1} s of CPU time); ")?;
        f.write_str(if self.is_starved {
            "its thread waits for a CPU of the host"
        } else {
            "its thread may be blocked on the output"
        })
    }
}

/// Watches a thread from the moment at which it is asked to stop.
#[derive(Debug, Clone, Copy)]
pub struct StopTimeout {
    limit: Nanos,
    /// Time of the last sample, and the sum of the times between samples, each limited to [`MAX_STEP`].
    sampled_at: Nanos,
    elapsed: Nanos,
    /// CPU time of the thread at the last sample, and the sum of its increments, each limited to the step.
    ran: Nanos,
    used: Nanos,
    /// Time for which it has slept without interruption.
    slept: Nanos,
}

impl StopTimeout {
    /// Watches a thread that is asked to stop at `now`, having consumed the CPU time `ran`.
    pub const fn new(limit: Nanos, now: Nanos, ran: Nanos) -> Self {
        let (elapsed, used, slept) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        Self { limit, sampled_at: now, elapsed, ran, used, slept }
    }

    /// Evaluates a thread that has not stopped by `now`. Returns its time usage if it is stuck.
    pub fn check(&mut self, now: Nanos, sample: ThreadSample) -> Option<TimeUsage> {
        let step = now.since(self.sampled_at).min(MAX_STEP);
        (self.sampled_at, self.elapsed) = (now, self.elapsed.after(step));
        let runs = sample.ran > self.ran;
        self.used = self.used.after(sample.ran.since(self.ran).min(step));
        self.ran = self.ran.max(sample.ran);
        self.slept = if runs || sample.is_runnable { Nanos::ZERO } else { self.slept.after(step) };
        let usage = TimeUsage {
            elapsed: self.elapsed,
            ran: self.used,
            is_starved: sample.is_runnable && self.used <= self.limit,
        };
        let is_stuck = usage.ran > self.limit
            || self.slept > self.limit
            || usage.elapsed.0 > self.limit.0.saturating_mul(STARVED_FACTOR);
        is_stuck.then_some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Nanos = Nanos::millis(2000);
    const START: Nanos = Nanos::millis(100_000);

    fn sample(ran: u64, is_runnable: bool) -> ThreadSample {
        ThreadSample { ran: Nanos::millis(7 + ran), is_runnable }
    }

    /// Samples a thread every 5 ms. Its CPU time since `START` is `ran`, and it is runnable according to
    /// `is_runnable`. Both are functions of the time since `START` in ms.
    fn stuck_at(ran: impl Fn(u64) -> u64, is_runnable: impl Fn(u64) -> bool) -> (u64, TimeUsage) {
        let mut watch = StopTimeout::new(LIMIT, START, Nanos::millis(7));
        let times = (0..20_000).map(|number| number * 5);
        let mut stuck = times.filter_map(|at| {
            let now = START.after(Nanos::millis(at));
            Some((at, watch.check(now, sample(ran(at), is_runnable(at)))?))
        });
        stuck.next().unwrap()
    }

    #[test]
    fn a_thread_that_sleeps_or_runs_is_stuck_after_the_limit() {
        let (at, usage) = stuck_at(|_| 0, |_| false);
        assert_eq!((at, usage.elapsed), (2005, Nanos::millis(2005)));
        let text = usage.to_string();
        assert_eq!(
            text,
            "within 2.0 s (0.0 s of CPU time); its thread may be blocked on the output"
        );
        let (at, usage) = stuck_at(|at| at, |_| true);
        assert_eq!((at, usage.elapsed, usage.is_starved), (2005, Nanos::millis(2005), false));
    }

    /// Regression: EEVDF ran two threads that wake each other for 3.3 s; a third counted as stuck after 2 s.
    #[test]
    fn starved_threads_get_the_long_limit() {
        let is_starved = |at| at < 3_300;
        // Afterwards it runs for 100 ms, then sleeps.
        let ran = |at: u64| at.saturating_sub(3_300).min(100);
        let (at, usage) = stuck_at(ran, is_starved);
        assert_eq!((at, usage.ran), (3_400 + 2_005, Nanos::millis(100)));
        let (at, usage) = stuck_at(|_| 0, |_| true);
        assert_eq!(at, 30_005);
        assert_eq!(
            usage.to_string(),
            "within 30.0 s (0.0 s of CPU time); its thread waits for a CPU of the host"
        );
    }

    #[test]
    fn waiting_for_a_cpu_extends_the_limit() {
        // The thread has a CPU for 10 ms of every 50 ms.
        let a_fifth = |at: u64| at / 50 * 10 + (at % 50).min(10);
        let (at, usage) = stuck_at(a_fifth, |_| false);
        assert_eq!((at, usage.ran), (10_005, Nanos::millis(2005)));
        // The thread sleeps after 5 s.
        assert_eq!(stuck_at(|at| a_fifth(at.min(5_000)), |_| false).0, 4_960 + 2_005);
    }

    #[test]
    fn barely_running_threads_hit_the_long_limit() {
        assert_eq!(stuck_at(|at| at / 1_000, |_| false).0, 30_005);
    }

    /// Happens after SIGSTOP, or if the sampling thread gets no CPU either.
    #[test]
    fn time_without_samples_does_not_count() {
        let mut watch = StopTimeout::new(LIMIT, START, Nanos::millis(7));
        assert_eq!(watch.check(START.after(Nanos::millis(60_000)), sample(0, false)), None);
        assert_eq!(watch.check(START.after(Nanos::millis(61_000)), sample(0, false)), None);
    }

    /// Regression: time in which an emulated CPU had no real CPU was charged to the thread on it, which was
    /// declared stuck after 1.1 s of a 2 s limit.
    #[test]
    fn cpu_time_without_samples_does_not_count() {
        let mut watch = StopTimeout::new(LIMIT, START, Nanos::millis(7));
        assert_eq!(watch.check(START.after(Nanos::millis(3_300)), sample(3_300, true)), None);
        assert_eq!(watch.check(START.after(Nanos::millis(3_900)), sample(3_900, true)), None);
        assert_eq!(watch.used, Nanos::millis(1_000));
    }

    #[test]
    fn decreasing_cpu_time_is_ignored() {
        let mut watch = StopTimeout::new(LIMIT, START, Nanos::millis(7));
        let nothing = ThreadSample { ran: Nanos::ZERO, is_runnable: false };
        let at = |number: u64| START.after(Nanos::millis(number * 5));
        let stuck = (0..1_000).find_map(|number| watch.check(at(number), nothing));
        assert_eq!(stuck.map(|usage| usage.ran), Some(Nanos::ZERO));
    }
}
