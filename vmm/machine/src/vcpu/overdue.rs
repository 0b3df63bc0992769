//! Decides whether a thread that was asked to stop is stuck. Pure: times are passed in.
//!
//! On a busy host a thread may wait long for a CPU, which does not make it stuck. The limit applies to the
//! CPU time that it consumes, and to the time for which it sleeps. The wait for a CPU has a far longer limit:
//! two threads that constantly wake each other have kept other threads of the same priority off a CPU for 3.3
//! s (EEVDF of Linux 6.18). Time without samples, because the whole process was stopped, does not count.

use std::fmt;

use base::units::Nanos;

/// A runnable thread that never stops is stuck after this multiple of its limit.
const MOST: u64 = 15;

/// Maximum time between two samples. After a longer time, the process is assumed to have been stopped.
const LONGEST_STEP: Nanos = Nanos::millis(500);

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
pub struct Late {
    /// Time since the request to stop.
    pub passed: Nanos,
    /// The part of this time during which it had a CPU.
    pub ran: Nanos,
    /// Whether the thread waits for a CPU from the host. Otherwise it sleeps, or has run all the time.
    pub is_starved: bool,
}

/// Formatted to follow the action that the thread did not complete.
impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, ran) = (self.passed.seconds(), self.ran.seconds());
        write!(f, "within {passed:.1} s, in which its thread had a CPU for {ran:.1} s; ")?;
        f.write_str(if self.is_starved {
            "it waits for one, which the host gives to others"
        } else {
            "it may be blocked on the output"
        })
    }
}

/// Watches a thread from the moment at which it is asked to stop.
#[derive(Debug, Clone, Copy)]
pub struct Overdue {
    limit: Nanos,
    /// Time of the last sample, and the sum of the times between samples, each limited to [`LONGEST_STEP`].
    looked: Nanos,
    passed: Nanos,
    /// CPU time of the thread at the last sample, and the sum of its increments, each limited to the step.
    ran: Nanos,
    used: Nanos,
    /// Time for which it has slept without interruption.
    slept: Nanos,
}

impl Overdue {
    /// Watches a thread that is asked to stop at `now`, having consumed the CPU time `ran`.
    pub const fn new(limit: Nanos, now: Nanos, ran: Nanos) -> Self {
        let (passed, used, slept) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        Self { limit, looked: now, passed, ran, used, slept }
    }

    /// Evaluates a thread that has not stopped by `now`. Returns its time usage if it is stuck.
    pub fn look(&mut self, now: Nanos, seen: ThreadSample) -> Option<Late> {
        let step = now.since(self.looked).min(LONGEST_STEP);
        (self.looked, self.passed) = (now, self.passed.after(step));
        let has_run = seen.ran > self.ran;
        self.used = self.used.after(seen.ran.since(self.ran).min(step));
        self.ran = self.ran.max(seen.ran);
        self.slept = if has_run || seen.is_runnable { Nanos::ZERO } else { self.slept.after(step) };
        let late = Late {
            passed: self.passed,
            ran: self.used,
            is_starved: seen.is_runnable && self.used <= self.limit,
        };
        let is_stuck = late.ran > self.limit
            || self.slept > self.limit
            || late.passed.0 > self.limit.0.saturating_mul(MOST);
        is_stuck.then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Nanos = Nanos::millis(2000);
    const BEGIN: Nanos = Nanos::millis(100_000);

    fn seen(ran: u64, is_runnable: bool) -> ThreadSample {
        ThreadSample { ran: Nanos::millis(7 + ran), is_runnable }
    }

    /// Samples a thread every 5 ms. Its CPU time since `BEGIN` is `ran`, and it is runnable according to
    /// `is_runnable`. Both are functions of the time since `BEGIN` in ms.
    fn found(ran: impl Fn(u64) -> u64, is_runnable: impl Fn(u64) -> bool) -> (u64, Late) {
        let mut overdue = Overdue::new(LIMIT, BEGIN, Nanos::millis(7));
        let looks = (0..20_000).map(|number| number * 5);
        let mut stuck = looks.filter_map(|at| {
            let now = BEGIN.after(Nanos::millis(at));
            Some((at, overdue.look(now, seen(ran(at), is_runnable(at)))?))
        });
        stuck.next().unwrap()
    }

    #[test]
    fn a_thread_that_sleeps_or_runs_is_stuck_after_the_limit() {
        let (at, late) = found(|_| 0, |_| false);
        assert_eq!((at, late.passed), (2005, Nanos::millis(2005)));
        let text = late.to_string();
        assert_eq!(
            text,
            "within 2.0 s, in which its thread had a CPU for 0.0 s; it may be blocked on the output"
        );
        let (at, late) = found(|at| at, |_| true);
        assert_eq!((at, late.passed, late.is_starved), (2005, Nanos::millis(2005), false));
    }

    /// Regression: EEVDF ran two threads that wake each other for 3.3 s; a third counted as stuck after 2 s.
    #[test]
    fn a_thread_that_gets_no_cpu_is_waited_for() {
        let is_starved = |at| at < 3_300;
        // Afterwards it runs for 100 ms, then sleeps.
        let ran = |at: u64| at.saturating_sub(3_300).min(100);
        let (at, late) = found(ran, is_starved);
        assert_eq!((at, late.ran), (3_400 + 2_005, Nanos::millis(100)));
        let (at, late) = found(|_| 0, |_| true);
        assert_eq!(at, 30_005);
        assert_eq!(
            late.to_string(),
            "within 30.0 s, in which its thread had a CPU for 0.0 s; it waits for one, which the host gives to others"
        );
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_has_longer() {
        // The thread has a CPU for 10 ms of every 50 ms.
        let a_fifth = |at: u64| at / 50 * 10 + (at % 50).min(10);
        let (at, late) = found(a_fifth, |_| false);
        assert_eq!((at, late.ran), (10_005, Nanos::millis(2005)));
        // The thread sleeps from then on.
        assert_eq!(found(|at| a_fifth(at.min(5_000)), |_| false).0, 4_960 + 2_005);
    }

    #[test]
    fn a_thread_that_hardly_runs_is_stuck_at_last() {
        assert_eq!(found(|at| at / 1_000, |_| false).0, 30_005);
    }

    /// Happens after SIGSTOP, or if the sampling thread gets no CPU either.
    #[test]
    fn time_in_which_nobody_looked_does_not_count() {
        let mut overdue = Overdue::new(LIMIT, BEGIN, Nanos::millis(7));
        assert_eq!(overdue.look(BEGIN.after(Nanos::millis(60_000)), seen(0, false)), None);
        assert_eq!(overdue.look(BEGIN.after(Nanos::millis(61_000)), seen(0, false)), None);
    }

    /// Regression: time in which an emulated CPU had no real CPU was charged to the thread on it, which was
    /// declared stuck after 1.1 s of a 2 s limit.
    #[test]
    fn cpu_time_in_which_nobody_looked_does_not_count() {
        let mut overdue = Overdue::new(LIMIT, BEGIN, Nanos::millis(7));
        assert_eq!(overdue.look(BEGIN.after(Nanos::millis(3_300)), seen(3_300, true)), None);
        assert_eq!(overdue.look(BEGIN.after(Nanos::millis(3_900)), seen(3_900, true)), None);
        assert_eq!(overdue.used, Nanos::millis(1_000));
    }

    #[test]
    fn cpu_time_that_goes_back_is_none() {
        let mut overdue = Overdue::new(LIMIT, BEGIN, Nanos::millis(7));
        let nothing = ThreadSample { ran: Nanos::ZERO, is_runnable: false };
        let at = |number: u64| BEGIN.after(Nanos::millis(number * 5));
        let stuck = (0..1_000).find_map(|number| overdue.look(at(number), nothing));
        assert_eq!(stuck.map(|late| late.ran), Some(Nanos::ZERO));
    }
}
