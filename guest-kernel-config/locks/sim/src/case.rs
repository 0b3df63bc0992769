//! A lock, a machine and a load, and the outcome of their run.

use std::fmt;
use std::rc::Rc;

use locks::{Handoff, System};
use sim_cell::Vcpu;

use crate::machine::{Harness, Standstill, StepCounts, Stepper, StepperSpec};
use crate::subject::{SteppedLock, VcpuSettings, rounds, subject};
use crate::trace::StepTrace;
use crate::waits::{BypassCounter, Bypassed, StepDuration, StepperLoad};

/// A lock under a load on a machine. Together with a seed it determines a run, step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The lock.
    pub system: System,
    /// Handoff options, if the lock is a PV ticketlock.
    pub handoff: Handoff,
    /// Looks before a halt (the spin threshold).
    pub spin_threshold: u32,
    /// vCPUs that take the lock.
    pub vcpus: usize,
    /// The machine that they run on.
    pub machine: StepperSpec,
    /// What they do.
    pub load: StepperLoad,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseOutcome {
    /// The most acquisitions by others while one waited.
    pub bypassed: Bypassed,
    /// Acquisitions of each vCPU.
    pub each: Vec<u64>,
    /// The machine's counters.
    pub counts: StepCounts,
}

/// A failure of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenGuarantee {
    /// The lock was acquired this many times while another vCPU held it.
    NotExclusive(u64),
    /// The lock's vCPUs came to a standstill.
    Stuck(Standstill),
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseFailure {
    /// The kind of failure.
    pub trouble: BrokenGuarantee,
    /// The seed, which repeats it.
    pub seed: u64,
    /// The results until then.
    pub outcome: CaseOutcome,
    /// The run's last events, one per line.
    pub trace: String,
}

/// Events printed of a failed run.
const TOLD: usize = 120;

impl Case {
    /// Runs it on the product's sources; a system that is not acquired has nothing to run.
    pub fn run(&self, seed: u64) -> Result<CaseOutcome, Box<CaseFailure>> {
        self.run_on(|| subject(self.system), seed)
    }

    /// Runs it on the lock that `make` returns. A run that fails is repeated, to record its last
    /// steps.
    pub fn run_on(
        &self,
        make: impl Fn() -> Option<Rc<dyn SteppedLock>>,
        seed: u64,
    ) -> Result<CaseOutcome, Box<CaseFailure>> {
        let Some(subject) = make() else { return Ok(self.nothing()) };
        let mut waits = self.waits(seed);
        let (counts, end) = self.drive(&subject, &mut waits, seed);
        let outcome = Self::outcome(&waits, counts);
        let trouble = match end {
            Err(stuck) => BrokenGuarantee::Stuck(stuck),
            Ok(()) if waits.violations() > 0 => BrokenGuarantee::NotExclusive(waits.violations()),
            Ok(()) => return Ok(outcome),
        };
        let trace = make().map_or_else(String::new, |again| self.trace_on(&again, seed, TOLD));
        Err(Box::new(CaseFailure { trouble, seed, outcome, trace }))
    }

    /// The last `keep` events of a run of `seed`, one per line.
    pub fn trace(&self, seed: u64, keep: usize) -> String {
        subject(self.system).map_or_else(String::new, |made| self.trace_on(&made, seed, keep))
    }

    fn trace_on(&self, subject: &Rc<dyn SteppedLock>, seed: u64, keep: usize) -> String {
        let mut trace = StepTrace::new(self.waits(seed), keep);
        // The result is known already.
        let _ = self.drive(subject, &mut trace, seed);
        trace.text(subject)
    }

    fn waits(&self, seed: u64) -> BypassCounter {
        // A separate generator: with the machine's own, its draws would depend on the vCPUs'.
        BypassCounter::new(self.load, self.vcpus, seed ^ 0x6c6f_6164)
    }

    fn drive(
        &self,
        subject: &Rc<dyn SteppedLock>,
        harness: &mut impl Harness,
        seed: u64,
    ) -> (StepCounts, Result<(), Standstill>) {
        let codes = (0..self.vcpus).map(|id| self.code(subject, id)).collect();
        let mut machine = Stepper::new(self.machine, codes, seed);
        let end = machine.run(harness);
        (machine.counts(), end)
    }

    fn code(&self, subject: &Rc<dyn SteppedLock>, id: usize) -> Vcpu {
        let subject = Rc::clone(subject);
        let (spin_threshold, handoff) = (self.spin_threshold, self.handoff);
        let guest = VcpuSettings { id, lock: 0, spin_threshold, handoff };
        let locks = self.load.locks;
        Vcpu::new(move || rounds(&*subject, guest, locks)).expect("memory for a stack of 128 KiB")
    }

    fn outcome(waits: &BypassCounter, counts: StepCounts) -> CaseOutcome {
        CaseOutcome { bypassed: waits.most(), each: waits.each().to_vec(), counts }
    }

    fn nothing(&self) -> CaseOutcome {
        Self::outcome(&BypassCounter::new(self.load, self.vcpus, 0), StepCounts::default())
    }
}

/// In the syntax of `compare`'s options: `queue:2+far:1`.
pub struct HandoffName(pub Handoff);

impl fmt::Display for HandoffName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Handoff { far, predecessor, adapt, claim, ahead, fuse, queue } = self.0;
        let flag = |is_on: bool, name: &str| is_on.then(|| name.to_owned());
        let number = |value: u16, name: &str| (value != 0).then(|| format!("{name}:{value}"));
        let parts = [
            number(queue, "queue"),
            number(far, "far"),
            flag(predecessor, "predecessor"),
            flag(adapt, "adapt"),
            flag(claim, "claim"),
            flag(ahead, "ahead"),
            flag(fuse, "fuse"),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.pad(&if parts.is_empty() { "-".to_owned() } else { parts.join("+") })
    }
}

impl fmt::Display for StepDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(steps) => write!(f, "{steps}"),
            Self::About(mean) => write!(f, "~{mean}"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, handoff, spin_threshold, vcpus, machine, load } = self;
        write!(f, "{system} {} vcpus={vcpus}", HandoffName(*handoff))?;
        if machine.strangers > 0 {
            write!(f, "+{}", machine.strangers)?;
        }
        write!(f, "/{} spin={spin_threshold}", machine.pcpus)?;
        write!(f, " critical={} think={}", load.critical, load.think)?;
        if machine.in_turn {
            write!(f, " in turn")?;
        }
        if load.locks > 1 {
            write!(f, " locks={}", load.locks)?;
        }
        if machine.kick_delay > 0 || machine.spurious > 0 {
            write!(f, " late={} spurious={}", machine.kick_delay, machine.spurious)?;
        }
        Ok(())
    }
}

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.trouble {
            BrokenGuarantee::NotExclusive(times) => write!(f, "held by two vCPUs, {times} times")?,
            BrokenGuarantee::Stuck(Standstill::Deadlock) => {
                write!(f, "all vCPUs halt: a wakeup was lost")?
            }
            BrokenGuarantee::Stuck(Standstill::NoProgress) => write!(f, "no acquisition any more")?,
        }
        writeln!(f, " (seed {}, step {})", self.seed, self.outcome.counts.steps)?;
        f.write_str(&self.trace)
    }
}

impl std::error::Error for CaseFailure {}
