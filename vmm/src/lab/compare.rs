//! The comparison's loop: levels, rounds, runs.

use thiserror::Error;

use super::{
    Contender, Interrupt, Plan,
    cell::{Cell, CellError, RunSpec, Sample},
    timeline::Timeline,
};
use crate::{sched::SchedReport, units::VcpuCount};

/// A run that failed, and which it was.
#[derive(Debug, Error)]
#[error("{vcpus} vCPUs, {contender}, run {round}: {source}", round = round + 1)]
pub struct LabError {
    /// vCPUs of the run.
    pub vcpus: VcpuCount,
    /// What ran.
    pub contender: Contender,
    /// Its round, from zero.
    pub round: u32,
    /// What happened.
    pub source: CellError,
}

/// One run's place and figures.
#[derive(Debug, Clone)]
pub struct Run {
    /// What ran.
    pub contender: Contender,
    /// Its round, from zero: the runs of a round are neighbours in time.
    pub round: u32,
    /// What it gave.
    pub sample: Sample,
}

/// All runs with one number of vCPUs, in the order they were made.
#[derive(Debug, Clone)]
pub struct LevelSamples {
    /// How many vCPUs.
    pub vcpus: VcpuCount,
    /// The runs.
    pub runs: Vec<Run>,
}

impl LevelSamples {
    /// The samples of one contender, in order.
    pub fn of(&self, contender: &Contender) -> impl Iterator<Item = &Sample> {
        self.runs.iter().filter(move |run| run.contender == *contender).map(|run| &run.sample)
    }

    /// The samples of two contenders that were made in the same round.
    pub fn pairs<'a>(
        &'a self,
        a: &'a Contender,
        b: &'a Contender,
    ) -> impl Iterator<Item = (&'a Sample, &'a Sample)> {
        let find = move |round, contender: &'a Contender| {
            self.runs.iter().find(move |run| run.round == round && run.contender == *contender)
        };
        self.runs
            .iter()
            .filter(move |run| run.contender == *a)
            .filter_map(move |run| Some((&run.sample, &find(run.round, b)?.sample)))
    }
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Comparison {
    /// One a level; the last may be incomplete.
    pub levels: Vec<LevelSamples>,
    /// The user ended it early.
    pub interrupted: bool,
}

impl Comparison {
    /// What the last run under a schedule of ours did.
    pub fn last_schedule(&self) -> Option<&SchedReport> {
        let runs = self.levels.iter().flat_map(|level| &level.runs);
        runs.filter_map(|run| run.sample.schedule.as_ref()).next_back().map(|all| &all.whole)
    }

    /// The runs that were traced, and what each is.
    pub fn timelines(&self) -> impl Iterator<Item = (String, &Timeline)> {
        self.levels.iter().flat_map(|level| {
            level.runs.iter().filter_map(|run| {
                let timeline = run.sample.timeline.as_deref()?;
                let vms = match timeline.vms() {
                    0 | 1 => String::new(),
                    vms => format!("{vms} VMs of "),
                };
                let (vcpus, contender, round) = (level.vcpus, &run.contender, run.round + 1);
                Some((format!("{vms}{vcpus} vCPUs, {contender}, run {round}"), timeline))
            })
        })
    }
}

/// Told how a comparison gets on.
pub trait Observer {
    /// A run begins.
    fn started(&mut self, vcpus: VcpuCount, contender: &Contender, round: u32);
    /// It gave this.
    fn finished(&mut self, vcpus: VcpuCount, run: &Run);
    /// A level has all its runs, or will have no more.
    fn level(&mut self, samples: &LevelSamples);
}

/// Carries out `plan` with `cell`. An interrupted comparison is what was
/// measured until then; a failed run fails it.
pub fn compare(
    plan: &Plan,
    cell: &dyn Cell,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> Result<Comparison, LabError> {
    let mut comparison = Comparison::default();
    for (index, vcpus) in plan.levels.iter().copied().enumerate() {
        let mut level = LevelSamples { vcpus, runs: Vec::new() };
        let lab = Lab { plan, cell, interrupt };
        comparison.interrupted = !lab.run_level(index, observer, &mut level)?;
        if !level.runs.is_empty() {
            observer.level(&level);
            comparison.levels.push(level);
        }
        if comparison.interrupted {
            break;
        }
    }
    Ok(comparison)
}

struct Lab<'a> {
    plan: &'a Plan,
    cell: &'a dyn Cell,
    interrupt: &'a Interrupt,
}

impl Lab<'_> {
    /// `false`: interrupted.
    fn run_level(
        &self,
        index: usize,
        observer: &mut dyn Observer,
        level: &mut LevelSamples,
    ) -> Result<bool, LabError> {
        let vcpus = level.vcpus;
        for round in 0..self.plan.runs {
            for contender in self.plan.order(index, round) {
                observer.started(vcpus, contender, round);
                let sample = match self.sample(vcpus, contender, round) {
                    Ok(sample) => sample,
                    Err(LabError { source: CellError::Interrupted, .. }) => return Ok(false),
                    Err(error) => return Err(error),
                };
                let run = Run { contender: contender.clone(), round, sample };
                observer.finished(vcpus, &run);
                level.runs.push(run);
            }
        }
        Ok(true)
    }

    /// One run.
    fn sample(
        &self,
        vcpus: VcpuCount,
        contender: &Contender,
        round: u32,
    ) -> Result<Sample, LabError> {
        let Plan { ref cpus, vms, warm_up, duration, faults, .. } = *self.plan;
        let &Contender { system, backend, handoff, ref policy } = contender;
        let schedule = self.plan.schedule(policy);
        let spec = RunSpec {
            vcpus,
            vms,
            cpus,
            system,
            backend,
            handoff,
            schedule,
            faults,
            warm_up,
            duration,
            trace: self.plan.trace && round + 1 == self.plan.runs,
            onlooker: None,
        };
        let error = |source| LabError { vcpus, contender: contender.clone(), round, source };
        self.cell.run(&spec, self.interrupt).map_err(error)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{cell::RefCell, time::Duration};

    use super::*;
    use crate::{guest::handoff::HandoffSpec, sched::PolicySpec, units::Nanos, vm::PvBackend};

    /// A sample of one vCPU with `rate` acquisitions in one second.
    pub(in crate::lab) fn sample(rate: u64) -> Sample {
        Sample { seconds: 1.0, operations: vec![rate], slow: Some(0), ..Sample::default() }
    }

    /// Native and PV under the host's scheduler.
    pub(in crate::lab) fn pair() -> Vec<Contender> {
        Contender::all(
            &[PolicySpec::host()],
            &[PvBackend::Off, PvBackend::Vmm],
            &[HandoffSpec::NONE],
        )
    }

    struct Script {
        made: RefCell<Vec<(u32, PvBackend)>>,
        interrupt_after: usize,
        fail: bool,
    }

    impl Cell for Script {
        fn run(&self, run: &RunSpec<'_>, _: &Interrupt) -> Result<Sample, CellError> {
            let mut made = self.made.borrow_mut();
            if made.len() == self.interrupt_after {
                return Err(match self.fail {
                    true => CellError::EndedEarly("gone".into()),
                    false => CellError::Interrupted,
                });
            }
            made.push((run.vcpus.get(), run.backend));
            Ok(sample(made.len() as u64))
        }
    }

    struct Silent;

    impl Observer for Silent {
        fn started(&mut self, _: VcpuCount, _: &Contender, _: u32) {}
        fn finished(&mut self, _: VcpuCount, _: &Run) {}
        fn level(&mut self, _: &LevelSamples) {}
    }

    fn plan() -> Plan {
        Plan {
            levels: vec![VcpuCount::ONE, VcpuCount::try_from(2).unwrap()],
            cpus: "0".parse().unwrap(),
            runs: 2,
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(1),
            contenders: pair(),
            vms: 1,
            slots: 1,
            slice: Nanos(1),
            recording: None,
            record: false,
            trace: false,
            seed: 0,
            faults: None,
        }
    }

    fn go(interrupt_after: usize, fail: bool) -> Result<(Script, Comparison), LabError> {
        let script = Script { made: RefCell::default(), interrupt_after, fail };
        let comparison = compare(&plan(), &script, &Interrupt::never(), &mut Silent)?;
        Ok((script, comparison))
    }

    #[test]
    fn runs_alternate_and_pair_up_by_round() {
        use PvBackend::{Off, Vmm};
        let (script, comparison) = go(usize::MAX, false).unwrap();
        let order: Vec<_> = script.made.into_inner();
        assert_eq!(order[..4], [(1, Off), (1, Vmm), (1, Vmm), (1, Off)]);
        assert_eq!(order[4..], [(2, Off), (2, Vmm), (2, Vmm), (2, Off)]);
        let [off, vmm] = &pair()[..] else { panic!("a pair") };
        let pairs: Vec<_> =
            comparison.levels[0].pairs(vmm, off).map(|(a, b)| (a.rate(), b.rate())).collect();
        assert_eq!(pairs, [(2.0, 1.0), (3.0, 4.0)]);
        assert!(!comparison.interrupted);
    }

    #[test]
    fn an_interrupt_keeps_what_was_measured() {
        let (_, comparison) = go(5, false).unwrap();
        assert!(comparison.interrupted);
        let runs: Vec<_> = comparison.levels.iter().map(|level| level.runs.len()).collect();
        assert_eq!(runs, [4, 1]);
        let (_, nothing) = go(0, false).unwrap();
        assert!(nothing.interrupted && nothing.levels.is_empty());
    }

    #[test]
    fn a_failed_run_says_which() {
        let error = go(3, true).err().unwrap();
        assert_eq!(error.to_string(), "1 vCPUs, off, run 2: the guest ended early: gone");
    }
}
