//! What makes a window no figure of its lock: something stopped its cell, or ran on the CPUs of its slots.

use std::iter::Sum;

use serde::Serialize;

use super::{
    point::{GuestKind, Point},
    store::record::Figures,
};
use base::host_counts::ThreadTimes;

/// The most that a window may be longer than asked: a part of it up to so many seconds,
const LATE_PART: f64 = 0.2;
const LATE_MOST: f64 = 2.0;
/// and what a busy host takes to end any window: half of a short one, within these bounds.
const LATE_ANYWAY: (f64, f64) = (0.01, 0.05);

/// The most that a vCPU of a schedule may wait for the CPU of its slot, as a share of the window, and in seconds.
const STARVED_SHARE: f64 = 0.1;
const STARVED_LEAST: f64 = 0.05;
/// What a change of threads on a CPU takes, in seconds: a schedule changes them thousands of times a second.
const CHANGE: f64 = 20e-6;

/// What disturbed a window, or some windows of a point.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Disturbance {
    /// Windows that were much longer than asked, and how many seconds the longest of them had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<(usize, f64)>,
    /// Windows in which a vCPU waited long for the CPU of its slot, and the greatest share of a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starved: Option<(usize, f64)>,
}

impl Disturbance {
    /// What disturbed the windows with these figures of a point.
    pub fn new<'a>(point: &Point, all: impl Iterator<Item = &'a Figures>) -> Self {
        all.fold(Self::default(), |seen, figures| Self {
            overlong: both(seen.overlong, overlong(point, figures).map(|value| (1, value))),
            starved: both(seen.starved, starved(point, figures).map(|value| (1, value))),
        })
    }

    /// Was there none?
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// In words, for a column of a table; empty if there was none.
    pub fn name(&self) -> &'static str {
        match (self.overlong, self.starved) {
            (None, None) => "",
            (Some(_), None) => "stopped",
            (None, Some(_)) => "starved",
            (Some(_), Some(_)) => "stopped and starved",
        }
    }
}

/// What disturbed the windows of several points.
impl Sum for Disturbance {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |seen, other| Self {
            overlong: both(seen.overlong, other.overlong),
            starved: both(seen.starved, other.starved),
        })
    }
}

/// The windows of both.
fn both(seen: Option<(usize, f64)>, other: Option<(usize, f64)>) -> Option<(usize, f64)> {
    match (seen, other) {
        (Some((count, most)), Some((others, value))) => Some((count + others, most.max(value))),
        (seen, other) => seen.or(other),
    }
}

/// Is a window of `seconds` longer than `asked` by so much that it is no figure of the lock? Then the host stood still,
/// or something stopped the cell (job control, a frozen control group, a suspended VM).
pub(super) fn is_overlong(asked: f64, seconds: f64) -> bool {
    let part = (asked * LATE_PART).min(LATE_MOST);
    let anyway = (asked / 2.0).clamp(LATE_ANYWAY.0, LATE_ANYWAY.1);
    seconds > asked + part + anyway
}

/// Simulated windows are as long as they are.
fn overlong(point: &Point, figures: &Figures) -> Option<f64> {
    let is_measured = point.guest != GuestKind::Sim;
    Some(figures.seconds).filter(|seconds| is_measured && point.is_overlong(*seconds))
}

/// The greatest share of the window for which a vCPU was ready to run and waited for a CPU, if that is too much and others
/// than vCPUs had the CPUs of the slots for as long. (A vCPU whose turn is over is ready to run, too, until its thread has
/// come to sleep: it waits while another vCPU has its slot, for a tenth to a third of the window under `rr`.) Only of
/// schedules whose vCPUs have the CPUs of their slots to themselves: elsewhere the host's kernel lets vCPUs wait for each
/// other, or as their control groups say.
fn starved(point: &Point, figures: &Figures) -> Option<f64> {
    let is_own = point.guest != GuestKind::Sim
        && !point.policy.is_host()
        && point.driver.is_user()
        && point.cgroups.is_none();
    if !is_own {
        return None;
    }
    let window = figures.host.iter().map(|machine| machine.window.seconds()).reduce(f64::max)?;
    let vcpus = || figures.host.iter().flat_map(|machine| &machine.vcpus);
    let waited = |times: &ThreadTimes| times.waited.seconds() - times.turns as f64 * CHANGE;
    let most = vcpus().map(waited).reduce(f64::max)?;
    let ran: f64 = vcpus().map(|times| times.ran.seconds()).sum();
    let lost = most.min(window * f64::from(point.slots) - ran);
    (lost > STARVED_LEAST && lost > window * STARVED_SHARE).then(|| lost / window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fixture, record};
    use base::{host_counts::HostCounts, units::Nanos};

    /// A window of half a second in which the second of two vCPUs waited for so many ms, in so many turns.
    fn window(waited: u64, turns: u64) -> Figures {
        let other = ThreadTimes { waited: Nanos::millis(waited), turns, ..ThreadTimes::default() };
        let vcpus = vec![ThreadTimes::default(), other];
        let host = vec![HostCounts { window: Nanos::millis(500), vcpus, ..HostCounts::default() }];
        Figures { seconds: 0.5, host, ..Figures::default() }
    }

    fn point(policy: &str) -> Point {
        let points = record(&Fixture::default()).contents.cells.into_iter().map(|cell| cell.point);
        points.into_iter().find(|point| point.policy.name() == policy).unwrap()
    }

    /// Regression: a window of 50 ms that was stopped for 50 ms passed, and one of 60 s that was stopped for 10 s.
    #[test]
    fn a_stop_is_noticed_in_short_windows_and_in_long_ones() {
        for (asked, most, too_long) in [
            (0.001, 0.011, 0.0113),
            (0.05, 0.084, 0.1),
            (0.5, 0.649, 0.66),
            (5.0, 6.04, 6.1),
            (60.0, 62.0, 70.0),
        ] {
            assert!(!is_overlong(asked, most), "{asked} {most}");
            assert!(is_overlong(asked, too_long), "{asked} {too_long}");
        }
    }

    #[test]
    fn a_vcpu_that_waited_long_for_its_slots_cpu_was_starved() {
        let rr = point("rr");
        let found = |figures: &[Figures]| Disturbance::new(&rr, figures.iter());
        assert!(found(&[window(49, 0), window(50, 1), window(60, 600)]).is_none());
        let disturbed = found(&[window(100, 0), window(49, 0), window(300, 0)]);
        assert_eq!(disturbed, Disturbance { overlong: None, starved: Some((2, 0.6)) });
        assert_eq!(disturbed.name(), "starved");
        let long = Figures { seconds: rr.duration.as_secs_f64() * 2.0, ..window(300, 0) };
        assert_eq!(found(&[long]).name(), "stopped and starved");
        assert_eq!(found(&[]).name(), "");
    }

    #[test]
    fn windows_of_several_points_are_counted_together() {
        let disturbance = |overlong, starved| Disturbance { overlong, starved };
        let all = [
            disturbance(Some((2, 0.9)), None),
            disturbance(None, Some((1, 0.5))),
            disturbance(Some((1, 1.5)), None),
        ];
        let sum: Disturbance = all.into_iter().sum();
        assert_eq!(sum, disturbance(Some((3, 1.5)), Some((1, 0.5))));
        assert!([disturbance(None, None); 2].into_iter().sum::<Disturbance>().is_none());
    }

    /// Regression: on a quiet host each window under `rr` was marked: threads whose turns were over waited behind the next
    /// vCPU until they slept (27 to 120 ms of 300).
    #[test]
    fn waiting_while_vcpus_have_all_slots_is_not_starvation() {
        let rr = point("rr");
        let disturbance = |ran: u64| {
            let mut figures = window(150, 50);
            let each = Nanos::millis(ran);
            let vcpus = figures.host[0].vcpus.iter_mut();
            vcpus.for_each(|times| times.ran = Nanos(each.0 * u64::from(rr.slots) / 2));
            Disturbance::new(&rr, [figures].iter())
        };
        assert!(disturbance(500).is_none() && disturbance(490).is_none());
        assert_eq!(
            disturbance(400).starved.map(|(count, _)| count),
            Some(1),
            "others ran for a fifth of it"
        );
    }

    #[test]
    fn waiting_by_the_host_or_a_control_group_is_not_starvation() {
        let figures = [window(400, 0)];
        let mut grouped = point("rr");
        grouped.cgroups = Some("per-vm:weights=100/300".parse().unwrap());
        for point in [point("host"), grouped] {
            assert!(Disturbance::new(&point, figures.iter()).is_none(), "{point}");
        }
    }
}
