//! Marks windows whose figures do not characterize the lock: something stopped the cell, ran on its slots'
//! CPUs, or took CPUs or time away. The host is checked before and after windows of all policies.

use std::iter::Sum;

use serde::Serialize;

use super::{
    point::{GuestKind, Point},
    store::record::Figures,
};
use base::host_counts::ThreadTimes;

/// Tolerated excess of a window over the requested length: a share of that length, up to a number of seconds.
const OVERLONG_SHARE: f64 = 0.2;
const OVERLONG_MAX: f64 = 2.0;
/// Further tolerance for a busy host: half of the requested length, within these bounds in seconds.
const BUSY_SLACK: (f64, f64) = (0.01, 0.05);

/// A vCPU starves if it waits for its slot's CPU for more than this share of the window and this many seconds.
const STARVED_SHARE: f64 = 0.1;
const STARVED_SECONDS: f64 = 0.05;
/// Cost of a thread switch on a CPU, in seconds: a schedule switches thousands of times a second.
const SWITCH_COST: f64 = 20e-6;

/// Number of disturbed windows, and the extent of the disturbance in the worst of them.
pub type Windows = Option<(usize, f64)>;

/// Disturbances of a window, or of some windows of a point.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Disturbance {
    /// Much longer than requested; the longest in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Windows,
    /// Stopped in between (job control, a frozen control group, a suspended host), in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Windows,
    /// A vCPU waited long for the CPU of its slot; the share of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starved: Windows,
    /// Fewer CPUs than slots (cpuset, hotplug); the number of missing CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacking: Windows,
    /// Throttled by a CPU quota; the share of the CPUs' time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled: Windows,
}

impl Disturbance {
    /// Returns the disturbances of a point's windows with these figures.
    pub fn new<'a>(point: &Point, windows: impl Iterator<Item = &'a Figures>) -> Self {
        windows.map(|figures| Self::from_window(point, figures)).sum()
    }

    /// Simulated windows are never disturbed.
    fn from_window(point: &Point, figures: &Figures) -> Self {
        if point.guest == GuestKind::Sim {
            return Self::default();
        }
        let once = |value: f64| (1, value);
        let overlong = point.is_overlong(figures.seconds).then_some(figures.seconds).map(once);
        let around = figures.around.as_ref();
        let lacking = around.and_then(|around| around.missing(point)).map(once);
        let throttled = around.and_then(|around| around.throttled(point, figures)).map(once);
        // Missing CPUs and quotas already explain waits.
        let starved = starved(point, figures).filter(|_| lacking.or(throttled).is_none());
        let stopped =
            around.and_then(|around| around.stop(point, figures)).filter(|_| overlong.is_none());
        Self {
            overlong,
            stopped: stopped.map(once),
            starved: starved.map(once),
            lacking,
            throttled,
        }
    }

    /// Whether there was no disturbance.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether something stopped a window, which may not happen again.
    pub const fn is_stop(&self) -> bool {
        self.overlong.is_some() || self.stopped.is_some()
    }

    /// Returns the marks in words, for a column of a table; empty if there was no disturbance.
    pub fn name(&self) -> String {
        let Self { overlong, stopped, starved, lacking, throttled } = self;
        let marks = [
            ("stopped", overlong.or(*stopped)),
            ("starved", *starved),
            ("short of CPUs", *lacking),
            ("throttled", *throttled),
        ];
        let names = marks.into_iter().filter_map(|(name, windows)| windows.map(|_| name));
        names.collect::<Vec<_>>().join(" and ")
    }
}

/// Merges the disturbances of several points.
impl Sum for Disturbance {
    fn sum<I: Iterator<Item = Self>>(disturbances: I) -> Self {
        disturbances.fold(Self::default(), |sum, other| Self {
            overlong: merge(sum.overlong, other.overlong),
            stopped: merge(sum.stopped, other.stopped),
            starved: merge(sum.starved, other.starved),
            lacking: merge(sum.lacking, other.lacking),
            throttled: merge(sum.throttled, other.throttled),
        })
    }
}

fn merge(a: Windows, b: Windows) -> Windows {
    match (a, b) {
        (Some((count, longest)), Some((more, value))) => Some((count + more, longest.max(value))),
        (a, b) => a.or(b),
    }
}

/// Whether a window of `seconds` is too long, compared with `requested`, to characterize the lock: the host
/// stalled, or something stopped the cell (job control, a frozen control group, a suspended VM).
pub(super) fn is_overlong(requested: f64, seconds: f64) -> bool {
    let share = (requested * OVERLONG_SHARE).min(OVERLONG_MAX);
    let slack = (requested / 2.0).clamp(BUSY_SLACK.0, BUSY_SLACK.1);
    seconds > requested + share + slack
}

/// Returns the greatest share of the window for which a vCPU was runnable and waited for a CPU, if it is too
/// large and the CPUs of the slots were used by other threads for as long. (After its slice, a vCPU also
/// stays runnable until its thread sleeps: it waits while another vCPU has its slot, for a tenth to a third
/// of the window under `rr`.) Applies only to schedules whose vCPUs have their slots' CPUs to themselves:
/// elsewhere, vCPUs wait for each other or because of control groups.
fn starved(point: &Point, figures: &Figures) -> Option<f64> {
    let is_exclusive = !point.policy.is_host() && point.driver.is_user() && point.cgroups.is_none();
    if !is_exclusive {
        return None;
    }
    let window = figures.host.iter().map(|machine| machine.window.seconds()).reduce(f64::max)?;
    let vcpus = || figures.host.iter().flat_map(|machine| &machine.vcpus);
    let waited = |times: &ThreadTimes| times.waited.seconds() - times.slices as f64 * SWITCH_COST;
    let longest = vcpus().map(waited).reduce(f64::max)?;
    let ran: f64 = vcpus().map(|times| times.ran.seconds()).sum();
    let lost = longest.min(window * f64::from(point.slots) - ran);
    (lost > STARVED_SECONDS && lost > window * STARVED_SHARE).then(|| lost / window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        host_window::{HostMoment, HostWindow},
        point::HostKind,
        testing::{Fixture, record},
    };
    use base::{host_counts::HostCounts, units::Nanos};

    /// A window of half a second in which the second of two vCPUs waited for `waited` ms, in `slices` slices.
    fn window(waited: u64, slices: u64) -> Figures {
        let times = ThreadTimes { waited: Nanos::millis(waited), slices, ..ThreadTimes::default() };
        let vcpus = vec![ThreadTimes::default(), times];
        let host = vec![HostCounts { window: Nanos::millis(500), vcpus, ..HostCounts::default() }];
        Figures { seconds: 0.5, host, ..Figures::default() }
    }

    /// A number of CPUs, and the milliseconds for which a quota throttled them and the host was suspended.
    fn at(cpus: u32, throttled: u64, suspended: u64) -> HostMoment {
        let [throttled, suspended] = [throttled, suspended].map(Nanos::millis);
        HostMoment { cpus, throttled, suspended }
    }

    fn point(policy: &str) -> Point {
        let points = record(&Fixture::default()).contents.cells.into_iter().map(|cell| cell.point);
        points.into_iter().find(|point| point.policy.name() == policy).unwrap()
    }

    /// Regression: a window of 50 ms was accepted with a stop of 50 ms, and one of 60 s with a stop of 10 s.
    #[test]
    fn detects_stops_in_windows_of_any_length() {
        for (requested, max, too_long) in [
            (0.001, 0.011, 0.0113),
            (0.05, 0.084, 0.1),
            (0.5, 0.649, 0.66),
            (5.0, 6.04, 6.1),
            (60.0, 62.0, 70.0),
        ] {
            assert!(!is_overlong(requested, max), "{requested} {max}");
            assert!(is_overlong(requested, too_long), "{requested} {too_long}");
        }
    }

    #[test]
    fn long_waits_for_a_cpu_are_starvation() {
        let rr = point("rr");
        let disturbance = |figures: &[Figures]| Disturbance::new(&rr, figures.iter());
        assert!(disturbance(&[window(49, 0), window(50, 1), window(60, 600)]).is_none());
        let disturbed = disturbance(&[window(100, 0), window(49, 0), window(300, 0)]);
        assert_eq!(disturbed, Disturbance { starved: Some((2, 0.6)), ..Disturbance::default() });
        assert_eq!(disturbed.name(), "starved");
        let long = Figures { seconds: rr.duration.as_secs_f64() * 2.0, ..window(300, 0) };
        assert_eq!(disturbance(&[long]).name(), "stopped and starved");
        assert_eq!(disturbance(&[]).name(), "");
    }

    #[test]
    fn merges_disturbances_of_several_points() {
        let disturbance =
            |overlong, starved| Disturbance { overlong, starved, ..Disturbance::default() };
        let disturbances = [
            disturbance(Some((2, 0.9)), None),
            disturbance(None, Some((1, 0.5))),
            disturbance(Some((1, 1.5)), None),
        ];
        let sum: Disturbance = disturbances.into_iter().sum();
        assert_eq!(sum, disturbance(Some((3, 1.5)), Some((1, 0.5))));
        assert!([disturbance(None, None); 2].into_iter().sum::<Disturbance>().is_none());
    }

    /// Regression: on a quiet host, each window under `rr` was marked: threads whose slices had expired
    /// waited behind the next vCPU until they slept (27 to 120 ms of 300).
    #[test]
    fn waits_behind_other_vcpus_are_no_starvation() {
        let rr = point("rr");
        let disturbance = |ran: u64| {
            let mut figures = window(150, 50);
            let each = Nanos::millis(ran);
            let vcpus = figures.host[0].vcpus.iter_mut();
            vcpus.for_each(|times| times.ran = Nanos(each.0 * u64::from(rr.slots) / 2));
            Disturbance::new(&rr, [figures].iter())
        };
        assert!(disturbance(500).is_none() && disturbance(490).is_none());
        let starved = disturbance(400).starved.map(|(count, _)| count);
        assert_eq!(starved, Some(1), "others ran for a fifth of it");
    }

    /// Regression (G11 of tests/HISTORY.md): a cpuset that shrank under the host's scheduler was not noticed,
    /// nor a stop that ended before its window did, nor a quota.
    #[test]
    fn marks_host_changes_under_all_schedules() {
        let mut points = Vec::new();
        for policy in ["host", "rr", "deferred"] {
            let policy: sched::PolicySpec = policy.parse().unwrap();
            for driver in sched::driver::DriverKind::ALL {
                for guest in GuestKind::ALL {
                    for host in [HostKind::Direct, HostKind::Emulated] {
                        let policy = policy.clone();
                        points.push(Point { policy, driver, guest, host, ..point("rr") });
                    }
                }
            }
        }
        let quiet = at(2, 0, 0);
        let from = |before, after| HostWindow { before, after, pause: Nanos::ZERO };
        let still = |moment| from(moment, moment);
        let paused = |ms| HostWindow { pause: Nanos::millis(ms), ..still(quiet) };
        for (what, around, ms, mark) in [
            ("nothing", still(quiet), 500, ""),
            ("an older host", still(at(2, 70_000, 90_000)), 500, ""),
            ("a cpuset shrinks", from(quiet, at(1, 0, 0)), 500, "short of CPUs"),
            ("a cpuset has shrunk before", still(at(1, 0, 0)), 500, "short of CPUs"),
            ("a cpuset grows back", from(at(0, 0, 0), quiet), 500, "short of CPUs"),
            ("more CPUs than slots", from(at(4, 0, 0), at(3, 0, 0)), 500, ""),
            ("a quota stops it for 1 ms", from(quiet, at(2, 1, 0)), 500, ""),
            ("a quota of a tenth", from(quiet, at(2, 800, 0)), 500, "throttled"),
            ("a group is replaced", from(at(2, 800, 0), quiet), 500, ""),
            ("suspended, a clock stands", from(quiet, at(2, 0, 3_000)), 500, "stopped"),
            ("suspended, clocks go on", from(quiet, quiet), 3_500, "stopped"),
            ("frozen to the end", paused(900), 1_400, "stopped"),
            ("frozen in between", paused(300), 500, "stopped"),
            ("a busy host", paused(90), 580, ""),
            (
                "all of it",
                HostWindow { pause: Nanos::millis(300), ..from(quiet, at(1, 800, 0)) },
                500,
                "stopped and short of CPUs and throttled",
            ),
        ] {
            let seconds = ms as f64 / 1e3;
            let figures = Figures { seconds, around: Some(around), ..Figures::default() };
            for point in &points {
                let mark = if point.guest == GuestKind::Sim { "" } else { mark };
                let disturbance = Disturbance::new(point, [&figures].into_iter());
                assert_eq!(disturbance.name(), mark, "{what}: {point}");
                assert_eq!(disturbance.is_stop(), mark.starts_with("stopped"), "{what}");
            }
        }
    }

    /// Observed with 128 vCPUs on two busy CPUs: the thread that monitors the window waited for 0.26 s.
    #[test]
    fn pauses_with_running_vcpus_are_no_stops() {
        let point = point("host");
        let mark = |ran: u64| {
            let mut figures = window(0, 0);
            figures.host[0].vcpus.iter_mut().for_each(|times| times.ran = Nanos::millis(ran));
            let moment = HostMoment { cpus: 2, ..HostMoment::default() };
            let pause = Nanos::millis(260);
            figures.around = Some(HostWindow { before: moment, after: moment, pause });
            Disturbance::new(&point, [figures].iter()).name()
        };
        assert_eq!((mark(480), mark(300)), (String::new(), String::new()));
        assert_eq!((mark(240), mark(0)), ("stopped".to_owned(), "stopped".to_owned()));
    }

    /// An emulated host does not see the host that runs it.
    #[test]
    fn marks_disturbances_of_the_underlying_host() {
        let point = point("host");
        let mark = |cpus, before, after| {
            let inner = at(2, 5, 7);
            let mut around = HostWindow { before: inner, after: inner, pause: Nanos::ZERO };
            let span = HostWindow { before, after, pause: Nanos::ZERO };
            around.add_outer(&span, cpus, &point, (0.5, 20.0));
            let figures = Figures { seconds: 0.5, around: Some(around), ..Figures::default() };
            Disturbance::new(&point, [&figures].into_iter()).name()
        };
        let quiet = at(2, 0, 0);
        assert_eq!(mark(2, quiet, quiet), "");
        assert_eq!(mark(2, quiet, at(1, 0, 0)), "short of CPUs");
        assert_eq!(mark(64, at(64, 0, 0), at(63, 0, 0)), "", "it uses three");
        assert_eq!(mark(64, at(64, 0, 0), at(2, 0, 0)), "short of CPUs");
        assert_eq!(mark(2, quiet, at(2, 100, 0)), "", "0.1 of 20 s");
        assert_eq!(mark(2, quiet, at(2, 15_000, 0)), "throttled");
        assert_eq!(mark(2, quiet, at(2, 0, 4_000)), "stopped");
    }

    #[test]
    fn shared_cpus_are_no_starvation() {
        let figures = [window(400, 0)];
        let mut grouped = point("rr");
        grouped.cgroups = Some("per-vm:weights=100/300".parse().unwrap());
        for point in [point("host"), grouped] {
            assert!(Disturbance::new(&point, figures.iter()).is_none(), "{point}");
        }
    }
}
