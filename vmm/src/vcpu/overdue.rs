//! Decides when a thread that was told to leave counts as stuck. Pure: times go in.
//!
//! On a busy host a thread may wait long for a CPU, and waiting is not being stuck: what counts is the
//! CPU time that it got since. A thread that gets none sleeps, for the kernel lets no thread of normal
//! priority wait for seconds.

use std::fmt;

use crate::units::Nanos;

/// A thread that gets a little CPU time now and then without ever leaving is stuck after so many times
/// its limit.
const MOST: u64 = 10;

/// How a thread that did not leave spent its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// Time since it was told.
    pub passed: Nanos,
    /// The part of it for which it had a CPU.
    pub ran: Nanos,
}

/// Printed after what it did not do.
impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, ran) = (self.passed.seconds(), self.ran.seconds());
        write!(f, "within {passed:.1} s, in which its thread had a CPU for {ran:.1} s")
    }
}

/// Watches one thread from the moment at which it is told to leave.
#[derive(Debug, Clone, Copy)]
pub struct Overdue {
    limit: Nanos,
    told: Nanos,
    /// Its CPU time until then.
    before: Nanos,
    /// Its CPU time at the last look, and when that had last grown.
    ran: Nanos,
    grew: Nanos,
}

impl Overdue {
    /// It is told to leave at `now`, and has had a CPU for `ran` until then.
    pub const fn new(limit: Nanos, now: Nanos, ran: Nanos) -> Self {
        Self { limit, told: now, before: ran, ran, grew: now }
    }

    /// It has not left at `now`, and has had a CPU for `ran`. Is it stuck?
    pub fn look(&mut self, now: Nanos, ran: Nanos) -> Option<Late> {
        if ran > self.ran {
            (self.ran, self.grew) = (ran, now);
        }
        let late = Late { passed: now.since(self.told), ran: self.ran.since(self.before) };
        let is_stuck = late.ran > self.limit
            || now.since(self.grew) > self.limit
            || late.passed.0 > self.limit.0.saturating_mul(MOST);
        is_stuck.then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Nanos = Nanos::millis(2000);
    const BEGIN: Nanos = Nanos::millis(100_000);

    /// Looks every 5 ms at a thread whose CPU time since `BEGIN` is `ran` of the time since then, in ms.
    fn found(ran: impl Fn(u64) -> u64) -> (u64, Late) {
        let mut overdue = Overdue::new(LIMIT, BEGIN, Nanos::millis(7));
        let looks = (0..20_000).map(|number| number * 5);
        let mut stuck = looks.filter_map(|at| {
            let now = BEGIN.after(Nanos::millis(at));
            Some((at, overdue.look(now, Nanos::millis(7 + ran(at)))?))
        });
        stuck.next().unwrap()
    }

    #[test]
    fn a_thread_that_sleeps_or_runs_is_stuck_after_the_limit() {
        let all: [fn(u64) -> u64; 2] = [|_| 0, |at| at];
        for ran in all {
            let (at, late) = found(ran);
            assert_eq!((at, late.passed), (2005, Nanos::millis(2005)));
        }
        let (_, late) = found(|_| 0);
        let said = late.to_string();
        assert_eq!(said, "within 2.0 s, in which its thread had a CPU for 0.0 s");
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_has_longer() {
        // It has a CPU for 10 of 50 ms.
        let a_fifth = |at: u64| at / 50 * 10 + (at % 50).min(10);
        let (at, late) = found(a_fifth);
        assert_eq!((at, late.ran), (10_005, Nanos::millis(2005)));
        // It is asleep from then on.
        assert_eq!(found(|at| a_fifth(at.min(5_000))).0, 4_960 + 2_005);
    }

    #[test]
    fn a_thread_that_hardly_runs_is_stuck_at_last() {
        assert_eq!(found(|at| at / 1_000).0, 20_005);
    }

    #[test]
    fn cpu_time_that_goes_back_is_none() {
        let mut overdue = Overdue::new(LIMIT, BEGIN, Nanos::millis(7));
        assert_eq!(overdue.look(BEGIN, Nanos::ZERO), None);
        let stuck = overdue.look(BEGIN.after(Nanos::millis(2001)), Nanos::ZERO);
        assert_eq!(stuck.map(|late| late.ran), Some(Nanos::ZERO));
    }
}
