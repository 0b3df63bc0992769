//! Cells of one point, with all repetitions and seeds together.

use std::{collections::BTreeMap, ops::Add};

use serde::Serialize;

use super::{
    super::{
        disturbance::Disturbance,
        latencies::Percentiles,
        point::Point,
        stats::{self, Fairness, Summary},
        store::record::{Figures, ScheduleFigures, SimCounts},
        sync_counters::{WorkCounts, WorkRow},
        timings::Timings,
    },
    Directed, HostRates,
    in_lock::InLock,
    repetition::{self, MeasuredCell, Repetition, RepetitionPlace},
};
use base::{counters::FaultCounts, units::Nanos};
use sched::{
    accounting::Totals,
    extensions::ExtensionCounts,
    policy::{Divergence, Hits},
};

/// Kinds of measured times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Timed {
    /// Operations, or waits for a lock.
    Operation,
    /// From a release in the guest to its kick in the VMM.
    ReleaseToKick,
    /// From a kick to the grant of a slot.
    KickToGrant,
    /// From a grant to the guest's first instruction.
    GrantToGuest,
    /// How late slices ended.
    Lateness,
    /// From a grant until the thread is about to enter the guest.
    Handover,
    /// How long extensions of slices were needed.
    Extension,
}

impl Timed {
    /// All kinds of times that a report shows.
    pub const ALL: [Self; 7] = [
        Self::Operation,
        Self::ReleaseToKick,
        Self::KickToGrant,
        Self::GrantToGuest,
        Self::Lateness,
        Self::Handover,
        Self::Extension,
    ];

    pub(crate) fn timings(self, figures: &Figures) -> Option<&Timings> {
        let times = |pick: fn(&ScheduleFigures) -> &Timings| figures.schedule.as_ref().map(pick);
        match self {
            Self::Operation => figures.latencies.as_ref(),
            Self::ReleaseToKick => times(|schedule| &schedule.times.release_to_kick),
            Self::KickToGrant => times(|schedule| &schedule.times.kick_to_grant),
            Self::GrantToGuest => times(|schedule| &schedule.times.grant_to_guest),
            Self::Lateness => times(|schedule| &schedule.times.lateness),
            Self::Handover => times(|schedule| &schedule.times.handover),
            Self::Extension => times(|schedule| &schedule.extension_needed),
        }
    }
}

/// Times of one kind, over all repetitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Times {
    /// Kind of the timed intervals.
    pub timed: Timed,
    /// Timings of all repetitions together.
    #[serde(skip)]
    pub timings: Timings,
    /// Their percentiles.
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

/// Preemptions by a pvticket schedule, or by the observed scheduler of the host, at a point, per measured second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Preempted {
    /// Preemptions of holders and waiters.
    #[serde(flatten)]
    pub in_lock: InLock,
    /// All other preemptions.
    pub other: f64,
    /// Other preemptions of vCPUs that were drawing a ticket: up to this many may have hit a holder or the
    /// next in line.
    pub entering: f64,
    /// Slices that vCPUs yielded on request of the schedule.
    pub yields: f64,
    /// Slices that ended because a grace expired.
    pub forced: f64,
    /// Records of the host's kernel that were lost in all repetitions. The other figures lack them.
    #[serde(skip_serializing_if = "crate::store::record::is_zero")]
    pub lost: u64,
    /// vCPU-seconds spun on a lock whose holder or next in line was preempted; None: not counted.
    pub wasted: Option<f64>,
    /// Wasted time as a share of the slots' time.
    pub wasted_share: Option<f64>,
    /// Hits and misses of a policy that injects preemptions, over all repetitions.
    pub hits: Option<Hits>,
    /// How extensions of slices ended, over all repetitions of a policy that grants them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<ExtensionCounts>,
    /// How replays differ from their recording, over all repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
    /// Whether all replays repeated their recording; None for other policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<bool>,
}

/// One point with its repetitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointStudy {
    /// The point, with the seed of one of the repetitions.
    pub point: Point,
    /// Repetitions with figures, in the order of their keys.
    #[serde(skip)]
    pub repetitions: Vec<Repetition>,
    /// Operations per second; None if no repetition has figures.
    pub rate: Option<Summary>,
    /// Fairness between vCPUs: medians over the repetitions. None if operations are not counted by vCPU: see
    /// [`Point::is_by_vcpu`].
    pub fairness: Option<Fairness>,
    /// Share of the operations that had to wait.
    pub slow: Option<f64>,
    /// Waits per second, for any lock of the guest's kernel, that exhausted the spin threshold.
    pub long_waits: Option<f64>,
    /// Halts per second, counted by the guest; None if its kernel does not count them.
    pub halts: Option<f64>,
    /// Kicks per second, counted with the halts.
    pub kicks: Option<f64>,
    /// Preemptions; None if the host's scheduler decides unobserved, or the guest publishes no telemetry.
    pub preempted: Option<Preempted>,
    /// The reason why the host's scheduler was not observed, in one of the repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unobserved: Option<String>,
    /// Directed yields, if any were observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directed: Option<Directed>,
    /// The reason why directed yields were not observed, in one of the repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_yields: Option<String>,
    /// All kinds of times that were measured.
    pub times: Vec<Times>,
    /// Timed waits still in progress at the end of their windows.
    pub open_waits: f64,
    /// Work of the lock in addition to its operations, if the guest counts it.
    pub work: Option<WorkRow>,
    /// Counts of injected faults, if faults are injected.
    pub faults: Option<FaultCounts>,
    /// Treatment of the vCPUs by the host's kernel, if counted.
    pub host: Option<HostRates>,
    /// Counts of its simulated host in addition to the schedule.
    pub sim: Option<SimRates>,
    /// Violations of mutual exclusion.
    pub violations: f64,
    /// Tickets served out of order.
    pub disorder: f64,
    /// Disturbances of its windows.
    #[serde(flatten)]
    pub disturbance: Disturbance,
}

/// Counts of a simulated host, per second of simulated time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SimRates {
    /// Pause-loop exits.
    pub pause_exits: f64,
    /// Halts ended by a kick while the vCPU polled.
    pub polled: f64,
    /// Seconds, over all CPUs, in which another host thread ran on a vCPU's CPU.
    pub stolen: f64,
}

impl PointStudy {
    /// Returns the ratio of lock-holder preemptions per second to those at `other`, over all windows. If
    /// `other` had none, one in all of its windows is assumed, which makes the ratio a lower bound. None if
    /// this point had no such preemptions, or if they are not counted.
    pub fn holder_preemptions_over(&self, other: &Self) -> Option<f64> {
        let (preempted, base) = self.preempted.zip(other.preempted)?;
        let windows = other.point.duration.as_secs_f64() * other.repetitions.len() as f64;
        let (preempted, base) = (preempted.in_lock, base.in_lock);
        let ratio = preempted.lhp / base.lhp.max(1.0 / windows);
        let is_known = preempted.lhp > 0.0 && preempted.is_observed == base.is_observed;
        (is_known && ratio.is_finite()).then_some(ratio)
    }

    /// Evaluates cells that have figures.
    pub fn new(point: Point, cells: &[MeasuredCell<'_>]) -> Self {
        let repetitions = repetition::repetitions(cells);
        let rates: Vec<f64> = repetitions.iter().map(|repetition| repetition.rate).collect();
        let figures = || cells.iter().map(|cell| cell.figures);
        let seconds: f64 = figures().map(|figures| figures.seconds).sum();
        let total =
            |pick: fn(&Figures) -> u64| figures().map(|figures| pick(figures) as f64).sum::<f64>();
        let is_counted = figures().all(|figures| !figures.halts_uncounted);
        let long_waits = figures().map(|figures| figures.long_waits.map(|count| count as f64));
        Self {
            rate: stats::summarise(&rates),
            fairness: fairness(&point, figures()),
            slow: slow(figures()),
            long_waits: long_waits
                .sum::<Option<f64>>()
                .filter(|_| seconds > 0.0)
                .map(|count| per_second(count, seconds)),
            halts: is_counted.then(|| per_second(total(|figures| figures.halts), seconds)),
            kicks: is_counted.then(|| per_second(total(|figures| figures.kicks), seconds)),
            preempted: preempted(figures(), &point),
            unobserved: figures().find_map(|figures| figures.unobserved.clone()),
            directed: Directed::new(figures()),
            no_yields: figures().find_map(|figures| figures.no_yields.clone()),
            times: times(figures()),
            open_waits: total(|figures| figures.open_waits),
            work: work(&point, figures(), seconds),
            faults: faults(figures()),
            host: HostRates::new(figures(), point.all_vcpus()),
            sim: sim(figures(), seconds),
            violations: total(|figures| figures.violations),
            disorder: total(|figures| figures.disorder),
            disturbance: Disturbance::new(&point, figures()),
            point,
            repetitions,
        }
    }

    /// Returns the share of the slots' time that was wasted, if it is known.
    pub fn wasted_share(&self) -> Option<f64> {
        self.preempted?.wasted_share
    }

    /// Returns the operations per second of each repetition.
    pub fn rates(&self) -> Vec<f64> {
        self.repetitions.iter().map(|repetition| repetition.rate).collect()
    }

    /// Returns the rates of both points in each place, this point's first.
    pub fn blocks(&self, other: &Self) -> stats::Blocks {
        Self::blocks_of(self.repetitions.iter(), other.repetitions.iter())
    }

    /// Returns the rates of these repetitions in each place.
    pub(super) fn blocks_of<'a>(
        above: impl Iterator<Item = &'a Repetition>,
        below: impl Iterator<Item = &'a Repetition>,
    ) -> stats::Blocks {
        let mut blocks: BTreeMap<&RepetitionPlace, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        for repetition in above {
            blocks.entry(&repetition.place).or_default().0.push(repetition.rate);
        }
        for repetition in below {
            blocks.entry(&repetition.place).or_default().1.push(repetition.rate);
        }
        blocks.into_values().collect()
    }

    /// Returns the rates of both points in each round that both have in one place, this point's first.
    pub fn pairs(&self, other: &Self) -> Vec<(f64, f64)> {
        let is_same_round = |a: &Repetition, b: &Repetition| (a.key, &a.place) == (b.key, &b.place);
        let find = |a: &Repetition| other.repetitions.iter().find(|b| is_same_round(a, b));
        let pair = |a: &Repetition| Some((a.rate, find(a)?.rate));
        self.repetitions.iter().filter_map(pair).collect()
    }

    /// Returns the median rate of the repetitions in this place.
    pub fn median_at(&self, place: &RepetitionPlace) -> Option<f64> {
        let repetitions = self.repetitions.iter().filter(|repetition| repetition.place == *place);
        stats::median(&repetitions.map(|repetition| repetition.rate).collect::<Vec<_>>())
    }

    /// Returns the number of outliers among the repetitions.
    pub fn outliers(&self) -> usize {
        self.repetitions.iter().filter(|repetition| repetition.outlier).count()
    }

    /// Returns the host CPU time of its vCPUs' threads per operation; None if the host does not count it.
    pub fn cpu_time_per_operation(&self) -> Option<Nanos> {
        let cpus = self.host?.threads?.ran * f64::from(self.point.all_vcpus());
        let rate = self.rate?.median.value;
        (rate > 0.0).then(|| Nanos((cpus / rate * 1e9) as u64))
    }

    /// Returns the times of a kind.
    pub fn times_of(&self, timed: Timed) -> Option<&Times> {
        self.times.iter().find(|times| times.timed == timed)
    }
}

/// Returns the fairness between the vCPUs of a cell. None if the workload determines the number of workers,
/// even if it equals the number of vCPUs.
pub fn fairness_of(point: &Point, figures: &Figures) -> Option<Fairness> {
    let is_of_vcpus = figures.operations.len() == point.all_vcpus() as usize;
    stats::fairness(&figures.operations).filter(|_| point.is_by_vcpu() && is_of_vcpus)
}

fn fairness<'a>(point: &Point, cells: impl Iterator<Item = &'a Figures>) -> Option<Fairness> {
    let values = cells.filter_map(|figures| fairness_of(point, figures));
    let values: Vec<Fairness> = values.collect();
    let median =
        |pick: fn(&Fairness) -> f64| stats::median(&values.iter().map(pick).collect::<Vec<_>>());
    Some(Fairness {
        min_over_max: median(|fairness| fairness.min_over_max)?,
        jain: median(|fairness| fairness.jain)?,
        busier_half: median(|fairness| fairness.busier_half)?,
    })
}

/// Returns None if a repetition does not have the counts.
fn work<'a>(
    point: &Point,
    cells: impl Iterator<Item = &'a Figures>,
    seconds: f64,
) -> Option<WorkRow> {
    let (mut counts, mut operations, mut slow) = (WorkCounts::default(), 0u64, 0u64);
    for figures in cells {
        counts += figures.work?;
        operations =
            figures.operations.iter().fold(operations, |sum, count| sum.saturating_add(*count));
        slow = slow.saturating_add(figures.slow.unwrap_or(0));
    }
    (seconds > 0.0).then(|| WorkRow::new(point.lock.family(), counts, operations, slow, seconds))
}

fn faults<'a>(cells: impl Iterator<Item = &'a Figures>) -> Option<FaultCounts> {
    cells.filter_map(|figures| figures.faults).reduce(|mut sum, more| {
        sum += more;
        sum
    })
}

/// Returns None if any repetition was not simulated.
fn sim<'a>(cells: impl Iterator<Item = &'a Figures>, seconds: f64) -> Option<SimRates> {
    let mut sums = [0.0; 3];
    for figures in cells {
        let SimCounts { pause_exits, polled, stolen_ns, .. } = figures.sim?;
        let counts = [pause_exits, polled, stolen_ns];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count as f64);
    }
    let [pause_exits, polled, stolen] = sums.map(|sum| per_second(sum, seconds));
    Some(SimRates { pause_exits, polled, stolen: stolen / 1e9 })
}

fn per_second(count: f64, seconds: f64) -> f64 {
    let rate = count / seconds;
    if rate.is_finite() { rate } else { 0.0 }
}

/// Returns the share of operations that had to wait; None without operations, or if it is not counted.
fn slow<'a>(cells: impl Iterator<Item = &'a Figures>) -> Option<f64> {
    let (mut slow, mut operations) = (0.0, 0.0);
    for figures in cells {
        slow += figures.slow? as f64;
        operations += figures.operations.iter().map(|count| *count as f64).sum::<f64>();
    }
    (operations > 0.0).then_some(slow / operations)
}

fn preempted<'a>(cells: impl Iterator<Item = &'a Figures>, point: &Point) -> Option<Preempted> {
    let scheduled: Vec<&ScheduleFigures> =
        cells.filter_map(|figures| figures.schedule.as_ref()).collect();
    let seconds: f64 = scheduled.iter().map(|schedule| schedule.seconds).sum();
    let sum = |pick: fn(&Totals) -> u64| {
        scheduled.iter().map(|schedule| pick(&schedule.totals) as f64).sum::<f64>()
    };
    let hits = scheduled.iter().filter_map(|schedule| schedule.hits).reduce(Hits::add);
    let extensions =
        scheduled.iter().filter_map(|schedule| schedule.extensions).reduce(ExtensionCounts::add);
    let preemptions = sum(|totals| totals.preemptions);
    // If all preemptions are unclassified, the guest publishes no telemetry.
    let is_unclassified = preemptions > 0.0 && sum(|totals| totals.unknown) >= preemptions;
    if scheduled.is_empty() || is_unclassified {
        return None;
    }
    let (lhp, lwp, queued) =
        (sum(|totals| totals.lhp), sum(|totals| totals.lwp), sum(|totals| totals.queued));
    let is_observed = scheduled.iter().any(|schedule| schedule.is_observed(point.driver));
    let wasted = scheduled
        .iter()
        .all(|schedule| !schedule.waste_uncounted)
        .then(|| per_second(sum(|totals| totals.wasted_spin_ns) / 1e9, seconds));
    let divergence = scheduled.iter().filter_map(|schedule| schedule.divergence).reduce(Add::add);
    Some(Preempted {
        in_lock: InLock {
            lhp: per_second(lhp, seconds),
            lwp: per_second(lwp, seconds),
            queued: per_second(queued, seconds),
            is_observed,
        },
        other: per_second((preemptions - lhp - lwp - queued).max(0.0), seconds),
        entering: per_second(sum(|totals| totals.entering), seconds),
        yields: per_second(sum(|totals| totals.yields), seconds),
        forced: per_second(sum(|totals| totals.forced), seconds),
        lost: scheduled.iter().fold(0, |sum, schedule| sum.saturating_add(schedule.lost)),
        wasted,
        wasted_share: wasted.map(|wasted| per_second(wasted, f64::from(point.slots))),
        hits,
        extensions,
        repeated: divergence.as_ref().map(Divergence::is_repeated),
        divergence,
    })
}

fn times<'a>(cells: impl Iterator<Item = &'a Figures> + Clone) -> Vec<Times> {
    let times = |timed: Timed| {
        let timings = Timings::merged(cells.clone().filter_map(|figures| timed.timings(figures)));
        let percentiles = timings.percentiles()?;
        Some(Times { timed, timings, percentiles })
    };
    Timed::ALL.into_iter().filter_map(times).collect()
}
