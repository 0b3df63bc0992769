//! A soak: the payload's lock taken over and over, with faults, and its promises checked all the
//! while. It measures nothing.

use std::time::Duration;

use super::{
    Cell, CellError, Interrupt,
    cell::{RunSpec, Sample},
};
use crate::{
    guest::handoff::HandoffSpec,
    machine::counters::FaultCounts,
    sched::accounting::Totals,
    sched::{PolicySpec, ScheduleSpec},
    units::{CpuList, Nanos, VcpuCount},
    vcpu::fault::FaultSpec,
    vm::PvBackend,
};

/// What to do.
#[derive(Debug)]
pub struct SoakPlan {
    /// Until so many acquisitions are done.
    pub acquisitions: u64,
    /// vCPUs of the rounds' machines, in turn.
    pub levels: Vec<VcpuCount>,
    /// Host CPUs that carry them.
    pub cpus: CpuList,
    /// How many of them are slots: the first.
    pub slots: usize,
    /// Who schedules.
    pub policy: PolicySpec,
    /// How long a turn lasts.
    pub slice: Nanos,
    /// For schedules and faults, and for those of each round others.
    pub seed: u64,
    /// What goes wrong on purpose.
    pub faults: Option<FaultSpec>,
    /// How long a round lasts.
    pub round: Duration,
}

/// What was done so far.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Rounds, each with a fresh machine.
    pub rounds: u64,
    /// Acquisitions.
    pub acquisitions: u64,
    /// Time in which they were made.
    pub seconds: f64,
    /// Halts of the guests.
    pub halts: u64,
    /// Their kicks.
    pub kicks: u64,
    /// Failures of mutual exclusion.
    pub violations: u64,
    /// Tickets served out of order.
    pub disorder: u64,
    /// Faults.
    pub faults: FaultCounts,
    /// What preemptions hit.
    pub preempted: Totals,
    /// The user ended it early.
    pub interrupted: bool,
}

impl Tally {
    fn add(&mut self, sample: &Sample) {
        self.rounds += 1;
        self.acquisitions += sample.acquisitions();
        self.seconds += sample.seconds;
        self.halts += sample.halts;
        self.kicks += sample.kicks;
        self.violations += sample.violations;
        self.disorder += sample.disorder;
        self.faults += sample.faults.unwrap_or_default();
        if let Some(schedule) = &sample.schedule {
            self.preempted += schedule.measured.totals;
        }
    }

    /// Has a lock broken its promise?
    pub const fn is_broken(&self) -> bool {
        self.violations > 0 || self.disorder > 0
    }
}

/// Runs round after round; `told` hears of each. Ends at the first broken promise.
pub fn soak(
    plan: &SoakPlan,
    cell: &dyn Cell,
    interrupt: &Interrupt,
    told: &mut dyn FnMut(VcpuCount, &Sample, &Tally),
) -> Result<Tally, CellError> {
    let mut tally = Tally::default();
    for vcpus in plan.levels.iter().copied().cycle() {
        if tally.acquisitions >= plan.acquisitions || tally.is_broken() {
            break;
        }
        match cell.run(&round(plan, vcpus, tally.rounds), interrupt) {
            Ok(sample) => {
                tally.add(&sample);
                told(vcpus, &sample, &tally);
            }
            Err(CellError::Interrupted) => {
                tally.interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(tally)
}

fn round(plan: &SoakPlan, vcpus: VcpuCount, number: u64) -> RunSpec<'_> {
    RunSpec {
        vcpus,
        vms: 1,
        cpus: &plan.cpus,
        system: None,
        backend: PvBackend::Vmm,
        handoff: HandoffSpec::NONE,
        schedule: ScheduleSpec::new(
            plan.policy.clone(),
            plan.cpus.cpus()[..plan.slots].to_vec(),
            plan.slice,
            plan.seed.wrapping_add(number),
        ),
        faults: plan.faults,
        warm_up: Duration::ZERO,
        duration: plan.round,
        trace: false,
        onlooker: None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::{super::compare::tests::sample, *};

    /// Gives 100 acquisitions a round, and in one round breaks.
    struct Guest {
        seen: RefCell<Vec<(u32, u64)>>,
        breaks_in: usize,
    }

    impl Cell for Guest {
        fn run(&self, run: &RunSpec<'_>, _: &Interrupt) -> Result<Sample, CellError> {
            let mut seen = self.seen.borrow_mut();
            let disorder = u64::from(seen.len() == self.breaks_in);
            seen.push((run.vcpus.get(), run.schedule.seed));
            Ok(Sample { disorder, ..sample(100) })
        }
    }

    fn go(breaks_in: usize) -> (Vec<(u32, u64)>, Tally) {
        let plan = SoakPlan {
            acquisitions: 450,
            levels: [8, 4, 2].map(|count| VcpuCount::try_from(count).unwrap()).into(),
            cpus: "0-1".parse().unwrap(),
            slots: 2,
            policy: "random".parse().unwrap(),
            slice: Nanos::millis(4),
            seed: 7,
            faults: None,
            round: Duration::from_secs(1),
        };
        let guest = Guest { seen: RefCell::default(), breaks_in };
        let mut told = 0;
        let tally = soak(&plan, &guest, &Interrupt::never(), &mut |_, _, _| told += 1).unwrap();
        assert_eq!(told, tally.rounds);
        (guest.seen.into_inner(), tally)
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
