//! A soak test: takes the payload's lock over and over, with faults injected, and checks mutual
//! exclusion and order throughout. It measures nothing.

use std::time::Duration;

use super::run::{Order, Watcher};
use base::{
    counters::FaultCounts,
    faults::FaultSpec,
    units::{Nanos, VcpuCount},
};
use sched::{PolicySpec, accounting::Totals, driver::DriverKind};
use study::{
    point::Point,
    spec::{Experiment, MOST_CELLS, PlannedCell, SpecText},
    store::record::{CellLine, Figures, Outcome},
};

/// The plan of a soak test.
#[derive(Debug)]
pub struct SoakPlan {
    /// Stop after this many acquisitions.
    pub acquisitions: u64,
    /// Numbers of vCPUs, used by the rounds in turn.
    pub levels: Vec<VcpuCount>,
    /// Number of slots.
    pub slots: u32,
    /// The scheduling policy.
    pub policy: PolicySpec,
    /// What carries out the schedule.
    pub driver: DriverKind,
    /// The time slice.
    pub slice: Nanos,
    /// Seed of schedules and faults; each round derives its own.
    pub seed: u64,
    /// Faults to inject.
    pub faults: Option<FaultSpec>,
    /// How long a round lasts.
    pub round: Duration,
}

/// Sums so far.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Rounds, each with a fresh machine.
    pub rounds: u64,
    /// Acquisitions by all vCPUs.
    pub acquisitions: u64,
    /// Time in which they were made, in seconds.
    pub seconds: f64,
    /// Halts, as the guests count them.
    pub halts: u64,
    /// Kicks, as the guests count them.
    pub kicks: u64,
    /// Violations of mutual exclusion.
    pub violations: u64,
    /// Tickets served out of order.
    pub disorder: u64,
    /// The faults injected, over all rounds.
    pub faults: FaultCounts,
    /// The schedule's sums, with what preemptions hit.
    pub preempted: Totals,
}

impl Tally {
    fn add(&mut self, figures: &Figures) {
        self.rounds += 1;
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        figures.operations.iter().for_each(|count| add(&mut self.acquisitions, *count));
        self.seconds += figures.seconds;
        add(&mut self.halts, figures.halts);
        add(&mut self.kicks, figures.kicks);
        add(&mut self.violations, figures.violations);
        add(&mut self.disorder, figures.disorder);
        self.faults += figures.faults.unwrap_or_default();
        if let Some(schedule) = &figures.schedule {
            self.preempted += schedule.totals;
        }
    }

    /// Was mutual exclusion or the order of tickets violated?
    pub const fn is_broken(&self) -> bool {
        self.violations > 0 || self.disorder > 0
    }
}

impl SoakPlan {
    /// The spec of one round with each number of vCPUs.
    pub fn spec(&self) -> String {
        let mut spec = SpecText::default();
        spec.one("slots", self.slots)
            .list("vcpus", &self.levels)
            .text("locks", ["pv-ticket"])
            .text("policies", [&self.policy])
            .text("drivers", [self.driver])
            .text("slice", [self.slice])
            .one("seconds", self.round.as_secs_f64())
            .one("warm-up", 0)
            .one("repetitions", 1)
            .one("seeds", self.seed);
        if let Some(faults) = self.faults {
            spec.text("faults", [faults]);
        }
        spec.into()
    }

    /// As many rounds as a run can have, from what [`SoakPlan::spec`] says. Each is a point of its
    /// own, as each has its own seed.
    pub fn rounds(&self, spec: Experiment) -> Experiment {
        let seeded = |(round, point): (u64, &Point)| {
            let mut point = point.clone();
            point.seed = self.seed.wrapping_add(round);
            point
        };
        let points = (0..MOST_CELLS).zip(spec.points.iter().cycle()).map(seeded).collect();
        Experiment { points, listed: true, ..spec }
    }
}

/// Adds up the rounds; enough are done when all acquisitions are, or at the first failure.
pub struct Soak<'a> {
    /// What is to be done.
    pub plan: &'a SoakPlan,
    /// What has been done.
    pub tally: Tally,
    /// Is called after each round with figures.
    pub told: &'a mut dyn FnMut(&Point, &Figures, &Tally),
    /// A round has failed.
    pub has_failed: bool,
}

impl Watcher for Soak<'_> {
    fn started(&mut self, _: &PlannedCell, _: &Point) {}

    fn ended(&mut self, line: &CellLine) {
        match &line.outcome {
            Outcome::Done { figures } => {
                self.tally.add(figures);
                (self.told)(&line.point, figures, &self.tally);
            }
            Outcome::Failed { .. } => self.has_failed = true,
            Outcome::Aborted => {}
        }
    }

    fn died(&mut self, _: &PlannedCell, _: &str) {}

    fn has_enough(&self) -> bool {
        let is_done = self.tally.acquisitions >= self.plan.acquisitions;
        is_done || self.has_failed || self.tally.is_broken()
    }

    fn ordered(&mut self, _: Order) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::{
        point::HostKind,
        spec::{Method, Setting},
        store::record::Load,
    };

    fn plan() -> SoakPlan {
        SoakPlan {
            acquisitions: 450,
            levels: [8, 4, 2].map(|count| VcpuCount::try_from(count).unwrap()).into(),
            slots: 2,
            policy: "random".parse().unwrap(),
            driver: DriverKind::User,
            slice: Nanos::millis(4),
            seed: 7,
            faults: None,
            round: Duration::from_secs(1),
        }
    }

    fn spec_of(plan: &SoakPlan) -> Experiment {
        let place = |_: &str, _, _| Ok(HostKind::Direct);
        let cpus = "0-1".parse().unwrap();
        let setting = Setting::new(&cpus, &place);
        Experiment::parse(&plan.spec(), "soak", &setting).unwrap()
    }

    #[test]
    fn a_spec_says_what_a_round_is() {
        let faults = Some("kick-delay:20us,spurious:0.05".parse().unwrap());
        let plan = SoakPlan { faults, slice: Nanos::micros(500), ..plan() };
        let found = spec_of(&plan);
        assert_eq!(found.points.len(), plan.levels.len());
        assert_eq!(found.method, Method { warm_up: Duration::ZERO, ..found.method });
        let point = &found.points[0];
        let lock = point.lock_name();
        assert_eq!((lock.as_str(), point.fault, point.slice), ("pv-ticket", faults, plan.slice));
        assert_eq!((point.duration, point.policy.name()), (plan.round, "random"));
    }

    /// Rounds of 100 acquisitions each until there are enough, with a violation in one round.
    fn go(breaks_in: usize) -> (Vec<(u32, u64)>, Tally) {
        let plan = plan();
        let experiment = plan.rounds(spec_of(&plan));
        let mut told = 0;
        let mut count = |_: &Point, _: &Figures, _: &Tally| told += 1;
        let tally = Tally::default();
        let mut soak = Soak { plan: &plan, tally, told: &mut count, has_failed: false };
        let mut seen = Vec::new();
        for cell in experiment.cells() {
            if soak.has_enough() {
                break;
            }
            let point = experiment.points[cell.point].clone();
            let disorder = u64::from(seen.len() == breaks_in);
            seen.push((point.vcpus.get(), point.seed));
            let figures =
                Figures { seconds: 1.0, operations: vec![100], disorder, ..Figures::default() };
            soak.ended(&CellLine {
                cell: cell.cell,
                round: cell.round,
                point,
                at_ms: 0,
                took: 1.0,
                load: Load::default(),
                node: None,
                outcome: Outcome::Done { figures: Box::new(figures) },
            });
        }
        let tally = soak.tally;
        assert_eq!(told, tally.rounds);
        (seen, tally)
    }

    #[test]
    fn rounds_go_on_until_enough_is_done() {
        let (seen, tally) = go(usize::MAX);
        assert_eq!(seen, [(8, 7), (4, 8), (2, 9), (8, 10), (4, 11)]);
        assert_eq!((tally.acquisitions, tally.is_broken()), (500, false));
    }

    #[test]
    fn the_first_broken_promise_ends_it() {
        let (seen, tally) = go(1);
        assert_eq!(seen.len(), 2);
        assert!(tally.is_broken());
    }
}
