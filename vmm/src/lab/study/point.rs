//! What the cells of one point say, all repetitions and seeds together.

use super::super::{
    latencies::Percentiles,
    point::Point,
    stats::{self, Summary},
    store::record::{CellLine, Figures, Load, ScheduleFigures},
    timings::Timings,
};
use crate::sched::accounting::Totals;

/// What repetitions of two points have in common that were neighbours in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundKey {
    /// Which of the runs.
    pub run: usize,
    /// Which repetition.
    pub round: u32,
    /// The point's seed.
    pub seed: u64,
}

/// One repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repetition {
    /// Which.
    pub key: RoundKey,
    /// Its number in the run.
    pub cell: u32,
    /// Operations a second, of all vCPUs.
    pub rate: f64,
    /// How busy the host was.
    pub load: Load,
    /// Does it lie far from the others? It counts all the same.
    pub outlier: bool,
}

/// What was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// Operations, or waits for a lock.
    Operation,
    /// From a release in the guest to its kick in the VMM.
    ReleaseToKick,
    /// From a kick to the grant of a slot.
    KickToGrant,
    /// From that grant to the guest's first instruction.
    GrantToGuest,
    /// How late turns ended.
    Lateness,
    /// From a grant to the thread's being about to enter the guest.
    Handover,
}

impl Timed {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Operation,
        Self::ReleaseToKick,
        Self::KickToGrant,
        Self::GrantToGuest,
        Self::Lateness,
        Self::Handover,
    ];

    fn of(self, figures: &Figures) -> Option<&Timings> {
        let of = |pick: fn(&ScheduleFigures) -> &Timings| figures.schedule.as_ref().map(pick);
        match self {
            Self::Operation => figures.latencies.as_ref(),
            Self::ReleaseToKick => of(|schedule| &schedule.release_to_kick),
            Self::KickToGrant => of(|schedule| &schedule.kick_to_grant),
            Self::GrantToGuest => of(|schedule| &schedule.grant_to_guest),
            Self::Lateness => of(|schedule| &schedule.lateness),
            Self::Handover => of(|schedule| &schedule.handover),
        }
    }
}

/// Times of one kind, of all repetitions together.
#[derive(Debug, Clone, PartialEq)]
pub struct Times {
    /// Of what.
    pub timed: Timed,
    /// All of them.
    pub timings: Timings,
    /// What a table says of them.
    pub percentiles: Percentiles,
}

/// What a schedule of ours did at a point, for each second measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preempted {
    /// Preemptions of lock holders.
    pub lhp: f64,
    /// Of the next in line.
    pub lwp: f64,
    /// Of those further back in a line.
    pub queued: f64,
    /// Of all others.
    pub other: f64,
    /// vCPU-seconds that were spun for a lock whose holder or next in line was off its CPU.
    pub wasted: f64,
    /// The same as a share of the slots' time.
    pub wasted_share: f64,
}

/// One point.
#[derive(Debug, Clone, PartialEq)]
pub struct PointStudy {
    /// Which; its seed is that of one of the repetitions.
    pub point: Point,
    /// With figures, in the order of their keys.
    pub repetitions: Vec<Repetition>,
    /// Operations a second; None: no repetition has figures.
    pub rate: Option<Summary>,
    /// Jain's index of the median repetition.
    pub jain: Option<f64>,
    /// Share of the operations that had to wait.
    pub slow: Option<f64>,
    /// Halts of the guest a second.
    pub halts: f64,
    /// Kicks of the guest a second.
    pub kicks: f64,
    /// None: the host's scheduler decided, or the guest keeps no telemetry.
    pub preempted: Option<Preempted>,
    /// Those of which there are any.
    pub times: Vec<Times>,
    /// Failures of mutual exclusion.
    pub violations: f64,
    /// Tickets served out of order.
    pub disorder: f64,
}

impl PointStudy {
    /// Of cells with figures: the run that each is of, the cell, its figures.
    pub fn new(point: Point, cells: &[(usize, &CellLine, &Figures)]) -> Self {
        let repetitions = repetitions(cells);
        let rates: Vec<f64> = repetitions.iter().map(|its| its.rate).collect();
        let figures = || cells.iter().map(|(_, _, figures)| *figures);
        let seconds: f64 = figures().map(|its| its.seconds).sum();
        let total = |of: fn(&Figures) -> u64| figures().map(|its| of(its) as f64).sum::<f64>();
        let jain: Vec<f64> = figures()
            .filter_map(|its| stats::fairness(&its.operations))
            .map(|fairness| fairness.jain)
            .collect();
        Self {
            rate: stats::summarise(&rates),
            jain: stats::median(&jain),
            slow: slow(figures()),
            halts: each(total(|its| its.halts), seconds),
            kicks: each(total(|its| its.kicks), seconds),
            preempted: preempted(figures(), f64::from(point.slots)),
            times: times(figures()),
            violations: total(|its| its.violations),
            disorder: total(|its| its.disorder),
            point,
            repetitions,
        }
    }

    /// Operations a second of each repetition.
    pub fn rates(&self) -> Vec<f64> {
        self.repetitions.iter().map(|its| its.rate).collect()
    }

    /// Rates of repetitions that both have, this one's first.
    pub fn pairs(&self, other: &Self) -> Vec<(f64, f64)> {
        let of = |key| other.repetitions.iter().find(|its| its.key == key);
        let pair = |its: &Repetition| Some((its.rate, of(its.key)?.rate));
        self.repetitions.iter().filter_map(pair).collect()
    }

    /// How many repetitions lie far from the others.
    pub fn outliers(&self) -> usize {
        self.repetitions.iter().filter(|its| its.outlier).count()
    }

    /// The times of one kind.
    pub fn timed(&self, timed: Timed) -> Option<&Times> {
        self.times.iter().find(|times| times.timed == timed)
    }
}

fn each(count: f64, of: f64) -> f64 {
    let share = count / of;
    if share.is_finite() { share } else { 0.0 }
}

fn repetitions(cells: &[(usize, &CellLine, &Figures)]) -> Vec<Repetition> {
    let of = |(run, cell, figures): &(usize, &CellLine, &Figures)| Repetition {
        key: RoundKey { run: *run, round: cell.round, seed: cell.point.seed },
        cell: cell.cell,
        rate: figures.rate(),
        load: cell.load,
        outlier: false,
    };
    let mut all: Vec<Repetition> = cells.iter().map(of).collect();
    all.sort_by_key(|its| its.key);
    let rates: Vec<f64> = all.iter().map(|its| its.rate).collect();
    for (its, flag) in all.iter_mut().zip(stats::outliers::flags(&rates)) {
        its.outlier = flag;
    }
    all
}

/// None when there are no operations, or the lock does not count the slow ones.
fn slow<'a>(all: impl Iterator<Item = &'a Figures>) -> Option<f64> {
    let (mut slow, mut operations) = (0.0, 0.0);
    for figures in all {
        slow += figures.slow? as f64;
        operations += figures.operations.iter().map(|of| *of as f64).sum::<f64>();
    }
    (operations > 0.0).then_some(slow / operations)
}

fn preempted<'a>(all: impl Iterator<Item = &'a Figures>, slots: f64) -> Option<Preempted> {
    let scheduled: Vec<(f64, Totals)> = all
        .filter_map(|figures| {
            let schedule = figures.schedule.as_ref()?;
            Some((schedule.seconds.unwrap_or(figures.seconds), schedule.totals))
        })
        .collect();
    let seconds: f64 = scheduled.iter().map(|(seconds, _)| seconds).sum();
    let sum = |of: fn(&Totals) -> u64| scheduled.iter().map(|(_, its)| of(its) as f64).sum::<f64>();
    let preemptions = sum(|its| its.preemptions);
    // All at nobody knows what: a guest without telemetry.
    let is_blind = preemptions > 0.0 && sum(|its| its.unknown) >= preemptions;
    if scheduled.is_empty() || is_blind {
        return None;
    }
    let (lhp, lwp, queued) = (sum(|its| its.lhp), sum(|its| its.lwp), sum(|its| its.queued));
    let wasted = each(sum(|its| its.wasted_spin_ns) / 1e9, seconds);
    Some(Preempted {
        lhp: each(lhp, seconds),
        lwp: each(lwp, seconds),
        queued: each(queued, seconds),
        other: each((preemptions - lhp - lwp - queued).max(0.0), seconds),
        wasted,
        wasted_share: each(wasted, slots),
    })
}

fn times<'a>(all: impl Iterator<Item = &'a Figures> + Clone) -> Vec<Times> {
    let of = |timed: Timed| {
        let timings = Timings::merged(all.clone().filter_map(|figures| timed.of(figures)));
        let percentiles = timings.percentiles()?;
        Some(Times { timed, timings, percentiles })
    };
    Timed::ALL.into_iter().filter_map(of).collect()
}
