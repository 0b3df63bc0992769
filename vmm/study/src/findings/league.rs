//! The league: the throughput of each lock under overcommit, by schedule.

use super::{
    Axis, LOCK_AXES, PointStudy, Study, Timed, compare::is_finite, hops::UsualHops,
    repetition::Repetition,
};
use crate::{
    point::Point,
    stats::{self, Estimate},
};
use base::units::Nanos;
use sched::policy::PolicySpec;

/// Axes along which the points of a league differ.
pub const LEAGUE_AXES: [Axis; 7] = [
    Axis::Lock,
    Axis::Backend,
    Axis::Handoff,
    Axis::Label,
    Axis::SpinThreshold,
    Axis::Policy,
    Axis::Vcpus,
];

/// Minimum number of locks in a league.
const MIN_LOCKS: usize = 3;

/// The ratio of vCPUs to CPUs at which locks are compared.
const OVERCOMMIT: f64 = 2.0;

/// Locks measured under the same schedules, all else being equal.
#[derive(Debug, Clone, PartialEq)]
pub struct League {
    /// The schedules, with their ratios of vCPUs to CPUs.
    pub trials: Vec<Trial>,
    /// Indices of the three trials that rank the locks: preempted holders, preempted next in line, and the
    /// host's own scheduler.
    pub ranked_by: [usize; 3],
    /// Index of the point with the highest rate of any lock at its base.
    pub best: usize,
    /// The locks, ordered by [`Standing::work`], highest first.
    pub rows: Vec<Standing>,
    /// Repetitions that count, and all repetitions. The others ran while the host's CPUs were elsewhere.
    pub counted: (usize, usize),
}

/// A schedule at one ratio of vCPUs to CPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The schedule.
    pub policy: PolicySpec,
    /// vCPUs per CPU.
    pub overcommit: f64,
}

/// One lock of a league.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Index of its point with as many vCPUs as CPUs under the host's scheduler, the base of all shares.
    pub base: usize,
    /// Its median rate at the base.
    pub rate: Option<f64>,
    /// Its rate at the base relative to the league's first lock.
    pub cost: Option<Estimate>,
    /// The lowest of its rates in the three ranking trials, relative to the rate of [`League::best`]; None: not measured
    /// in all. A share of the rate at its base would reward a lock that is slow there.
    pub work: Option<Estimate>,
    /// By trial; None: not measured.
    pub results: Vec<Option<TrialResult>>,
    /// The longest operation in the trial under the host's scheduler, if measured and timed.
    pub longest: Option<Nanos>,
}

/// Throughput that a lock keeps in a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialResult {
    /// Index of the point.
    pub point: usize,
    /// Its median rate.
    pub rate: Option<f64>,
    /// Its rate relative to the lock's rate at its base. May exceed 1: at the base, all CPUs contend for the lock.
    pub share: Option<Estimate>,
    /// Whether the trial should have preempted certain vCPUs, but hit none.
    pub found_no_target: bool,
}

impl League {
    /// Returns the leagues of a study: one for each combination of the other axes' values under which enough
    /// locks were measured with all three schedules.
    pub fn all(study: &Study) -> Vec<Self> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let has_rate = |(_, point): &(usize, &PointStudy)| point.rate.is_some();
        for (ix, point) in study.points.iter().enumerate().filter(has_rate) {
            let is_in = |group: &&mut Vec<usize>| {
                differ_in(&study.points[group[0]].point, &point.point, &LEAGUE_AXES)
            };
            match groups.iter_mut().find(is_in) {
                Some(group) => group.push(ix),
                None => groups.push(vec![ix]),
            }
        }
        let usual = UsualHops::new(&study.points);
        let league = |group: &Vec<usize>| Self::new(&study.points, group, &usual, study.seed);
        groups.iter().filter_map(league).collect()
    }

    fn new(
        points: &[PointStudy],
        group: &[usize],
        usual: &UsualHops<'_>,
        seed: u64,
    ) -> Option<Self> {
        let counting = |ix: usize| counting_repetitions(&points[ix], usual);
        let ratio = |above: usize, below: usize| {
            let (above, below) = (counting(above), counting(below));
            let blocks = PointStudy::blocks_of(above.into_iter(), below.into_iter());
            stats::ratio_in_blocks(&blocks, seed).filter(is_finite)
        };
        let is_base = |ix: &usize| {
            let point = &points[*ix].point;
            is_under_host(point) && point.overcommit() == 1.0
        };
        // Only the first of several models of the host counts.
        let mut bases: Vec<usize> = Vec::new();
        for ix in group.iter().copied().filter(is_base) {
            let is_known = |base: &usize| is_same_lock(&points[*base].point, &points[ix].point);
            if !bases.iter().any(is_known) {
                bases.push(ix);
            }
        }
        let first = *bases.first()?;
        let mut trials: Vec<Trial> = Vec::new();
        for ix in group.iter().filter(|ix| !bases.contains(ix)) {
            let trial = Trial::new(&points[*ix].point);
            if !trials.contains(&trial) {
                trials.push(trial);
            }
        }
        trials.sort_by(|a, b| a.overcommit.total_cmp(&b.overcommit));
        let trial_at = |matches: fn(&PolicySpec) -> bool| {
            trials.iter().position(|trial| trial.overcommit == OVERCOMMIT && matches(&trial.policy))
        };
        let holders = trial_at(|policy| policy.name() == "lhp")?;
        let next = trial_at(|policy| policy.name() == "lwp")?;
        let host = trial_at(|policy| policy.is_host() || policy.is_host_model())?;
        let ranked_by = [holders, next, host];
        let rate = |ix: usize| {
            stats::median(&counting(ix).iter().map(|cell| cell.rate).collect::<Vec<_>>())
        };
        let best = bases.iter().copied().max_by(|a, b| {
            let [a, b] = [*a, *b].map(|ix| rate(ix).unwrap_or(0.0));
            a.total_cmp(&b)
        })?;
        let standing = |base: &usize| {
            let result = |trial: &Trial| {
                let point = find_trial(points, group, *base, trial)?;
                Some(TrialResult::new(&points[point], point, rate(point), ratio(point, *base)))
            };
            let results: Vec<Option<TrialResult>> = trials.iter().map(result).collect();
            let work = ranked_by.map(|trial| ratio(results[trial]?.point, best));
            let lowest = work
                .into_iter()
                .collect::<Option<Vec<Estimate>>>()
                .and_then(|work| work.into_iter().min_by(|a, b| a.value.total_cmp(&b.value)));
            Standing {
                base: *base,
                rate: rate(*base),
                cost: ratio(*base, first),
                work: lowest,
                longest: results[host].and_then(|result| longest(&points[result.point])),
                results,
            }
        };
        let mut rows: Vec<Standing> = bases.iter().map(standing).collect();
        let work = |row: &Standing| row.work.map_or(-1.0, |work| work.value);
        rows.sort_by(|a, b| work(b).total_cmp(&work(a)));
        let counted = group.iter().map(|ix| counting(*ix).len()).sum();
        let total = group.iter().map(|ix| points[*ix].repetitions.len()).sum();
        let counted = (counted, total);
        (rows.len() >= MIN_LOCKS).then_some(Self { trials, ranked_by, best, rows, counted })
    }

    /// Returns the lock with the highest rate in this trial, with that rate.
    pub fn best_in(&self, trial: usize) -> Option<(&Standing, f64)> {
        let rates = self.rows.iter().filter_map(|row| Some((row, row.results[trial]?.rate?)));
        rates.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

impl Trial {
    fn new(point: &Point) -> Self {
        Self { policy: point.policy.clone(), overcommit: point.overcommit() }
    }
}

impl Standing {
    /// Returns the lock's share in a trial, if known.
    pub fn share(&self, trial: usize) -> Option<f64> {
        self.results.get(trial)?.as_ref()?.share.map(|share| share.value)
    }

    /// Returns the lock's lowest share in these trials; negative if not measured in all of them.
    pub fn lowest_share(&self, trials: [usize; 3]) -> f64 {
        let shares = trials.map(|trial| self.share(trial).unwrap_or(-1.0));
        shares.into_iter().fold(f64::INFINITY, f64::min)
    }
}

impl TrialResult {
    fn new(study: &PointStudy, point: usize, rate: Option<f64>, share: Option<Estimate>) -> Self {
        let hits = study.preempted.and_then(|preempted| preempted.hits);
        Self { point, rate, share, found_no_target: hits.is_some_and(|hits| hits.hits == 0) }
    }
}

/// Returns the point of the lock of `base` in a trial.
fn find_trial(points: &[PointStudy], group: &[usize], base: usize, trial: &Trial) -> Option<usize> {
    let is_trial = |ix: &usize| {
        let point = &points[*ix].point;
        is_same_lock(&points[base].point, point) && Trial::new(point) == *trial
    };
    group.iter().copied().find(is_trial)
}

/// Returns the repetitions that count: with the host's CPUs in their usual place, or all if they never were.
/// (Medians of all were off by a factor of up to four if a quarter of the repetitions or more ran elsewhere.)
fn counting_repetitions<'a>(point: &'a PointStudy, usual: &UsualHops<'_>) -> Vec<&'a Repetition> {
    let in_place: Vec<_> = point.repetitions.iter().filter(|cell| usual.are_usual(cell)).collect();
    if in_place.is_empty() { point.repetitions.iter().collect() } else { in_place }
}

fn longest(point: &PointStudy) -> Option<Nanos> {
    point.times_of(Timed::Operation).map(|times| times.percentiles.max)
}

fn is_under_host(point: &Point) -> bool {
    point.policy.is_host() || point.policy.is_host_model()
}

/// Whether both are one row of a league: a lock with its options and its spin threshold.
pub(super) fn is_same_lock(a: &Point, b: &Point) -> bool {
    let is_of_lock = |axis: &Axis| LOCK_AXES.contains(axis) || *axis == Axis::SpinThreshold;
    !Axis::between(a, b).iter().any(is_of_lock)
}

/// Whether both differ only along these axes.
fn differ_in(a: &Point, b: &Point, axes: &[Axis]) -> bool {
    Axis::between(a, b).iter().all(|axis| axes.contains(axis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fixture, record};

    fn fixture() -> Fixture {
        Fixture {
            locks: vec![("ticket", "off"), ("pv-ticket", "vmm"), ("mcs", "off")],
            policies: vec!["host", "rr", "lhp:50,5ms", "lwp:50,5ms"],
            vcpus: vec![2, 4, 8],
            ..Fixture::default()
        }
    }

    fn leagues(fixture: &Fixture) -> (Study, Vec<League>) {
        let study = Study::new(&[record(fixture)]);
        let leagues = League::all(&study);
        (study, leagues)
    }

    #[test]
    fn locks_have_shares_in_every_trial() {
        let (study, leagues) = leagues(&fixture());
        let [league] = leagues.as_slice() else { panic!("{} leagues", leagues.len()) };
        // All but the base: three ratios under four schedules.
        assert_eq!((league.trials.len(), league.rows.len()), (11, 3));
        let policies = league.ranked_by.map(|trial| league.trials[trial].policy.name());
        assert_eq!(policies, ["lhp", "lwp", "host"]);
        assert!(league.ranked_by.iter().all(|ix| league.trials[*ix].overcommit == OVERCOMMIT));
        for row in &league.rows {
            let base = &study.points[row.base];
            assert_eq!((base.point.vcpus.get(), base.point.policy.name()), (2, "host"));
            for (trial, result) in league.trials.iter().zip(&row.results) {
                let result = result.expect("all were measured");
                let point = &study.points[result.point];
                assert_eq!(point.point.lock, base.point.lock);
                assert_eq!(Trial::new(&point.point), *trial);
                // Computed independently from the medians.
                let median = |point: &PointStudy| point.rate.expect("it has cells").median.value;
                let share = result.share.expect("both have a rate");
                assert_eq!(share.value, median(point) / median(base), "{trial:?}");
                assert!(share.interval.is_some_and(|within| within.contains(share.value)));
            }
            assert!(row.longest.is_some_and(|longest| longest > Nanos::ZERO));
        }
        let locks: Vec<_> =
            league.rows.iter().map(|row| study.points[row.base].point.lock).collect();
        assert_eq!(
            locks.last().map(|lock| lock.name()),
            Some("ticket"),
            "it keeps least: {locks:?}"
        );
        let first =
            league.rows.iter().find(|row| study.points[row.base].point.lock.name() == "ticket");
        assert_eq!(first.and_then(|row| row.cost).map(|cost| cost.value), Some(1.0));
    }

    /// Regression: a lock that was slow at 1x came first, because it had little to lose.
    #[test]
    fn a_slow_lock_that_keeps_its_rate_is_not_first() {
        let mut study = Study::new(&[record(&fixture())]);
        for point in &mut study.points {
            let is_base = point.point.vcpus.get() == 2;
            let is_slow = point.point.lock.name() == "mcs";
            let rate = if is_slow { 1e5 } else { 1e6 * if is_base { 10.0 } else { 1.0 } };
            point.repetitions.iter_mut().for_each(|repetition| repetition.rate = rate);
        }
        let league = &League::all(&study)[0];
        let work = league.rows.iter().map(|row| row.work.map(|work| work.value));
        assert_eq!(work.collect::<Vec<_>>(), [Some(0.1), Some(0.1), Some(0.01)]);
        let last = league.rows.last().expect("three locks");
        assert_eq!(study.points[last.base].point.lock.name(), "mcs");
        assert_eq!(last.lowest_share(league.ranked_by), 1.0);
    }

    /// While the host's CPUs are in another place, contended locks have a quarter of their rate.
    #[test]
    fn repetitions_on_moved_cpus_do_not_count() {
        let mut study = Study::new(&[record(&Fixture { rounds: 5, ..fixture() })]);
        let still = League::all(&study)[0].counted;
        for point in &mut study.points {
            let is_base = point.point.vcpus.get() == 2;
            for (ix, repetition) in point.repetitions.iter_mut().enumerate() {
                let is_far = is_base && ix < 2;
                repetition.load.hop_before = Some(if is_far { 160.0 } else { 30.0 });
                repetition.rate = if is_far { repetition.rate / 4.0 } else { 8e6 };
            }
        }
        let moved = &League::all(&study)[0];
        for row in &moved.rows {
            assert_eq!(row.rate, Some(8e6));
            let mut shares = row.results.iter().flatten().filter_map(|result| result.share);
            assert!(shares.all(|share| share.value == 1.0), "{row:?}");
        }
        assert_eq!(still.0, still.1, "no hop is known");
        assert!(moved.counted.0 < still.0 && moved.counted.1 == still.1, "{:?}", moved.counted);
    }

    #[test]
    fn sections_of_two_lengths_make_two_leagues() {
        assert_eq!(leagues(&Fixture { critical: vec![50, 500], ..fixture() }).1.len(), 2);
    }

    #[test]
    fn without_a_schedule_or_with_two_locks_there_is_no_league() {
        let two = fixture().locks[..2].to_vec();
        let without = |name: &str| {
            let policies = fixture().policies;
            policies.into_iter().filter(|policy| !policy.starts_with(name)).collect::<Vec<_>>()
        };
        for none in [
            Fixture { locks: two, ..fixture() },
            Fixture { policies: without("lhp"), ..fixture() },
            Fixture { policies: without("lwp"), ..fixture() },
            Fixture { policies: without("host"), ..fixture() },
            Fixture { vcpus: vec![2, 3, 8], ..fixture() },
            Fixture { vcpus: vec![3, 4], ..fixture() },
        ] {
            assert_eq!(leagues(&none).1, [], "{none:?}");
        }
    }
}
