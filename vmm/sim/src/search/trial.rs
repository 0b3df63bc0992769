//! A single simulation and the trouble found in it.

use std::fmt;

use base::plural::count;
use base::units::Nanos;
use serde::{Deserialize, Serialize};

use super::bound::Bounds;
use super::space::FEW_VCPUS;
use super::{LockFn, Scenario};
use sched::recording::Recording;

use crate::engine::{Sim, Stuck};
use crate::figures::SimFigures;
use crate::guest::{self, LongestWaits, guest_systems};
use crate::machine::Machine;
use crate::spec::SimSpecError;
use crate::{Brake, Decisions};

/// Kinds of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// Two vCPUs held the lock at the same time.
    NotExclusive,
    /// All vCPUs halt, and no kick is pending.
    AllHalt,
    /// vCPUs run, but none completes an operation.
    NoProgress,
    /// Tickets were served out of order.
    OutOfTurn,
    /// A waiter in line was passed more often than the lock promises.
    PassedInLine,
    /// A throttled waiter was passed more often than the lock promises.
    PassedOutside,
}

/// A violation of a lock's guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trouble {
    /// Its kind.
    pub kind: TroubleKind,
    /// Number of violations, or number of times that a waiter was passed.
    pub counted: u64,
    /// Maximum number of times that a waiter may be passed.
    pub most: u64,
}

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialOutcome {
    /// The trouble found, if any.
    pub trouble: Option<Trouble>,
    /// All figures until the end or the lack of progress.
    pub figures: SimFigures,
    /// The longest waits.
    pub waits: LongestWaits,
}

/// Maximum number of events, even if operations are missing: about a second. With many vCPUs on few CPUs some
/// locks make hardly any progress.
const MAX_EVENTS: u64 = 10_000_000;
/// The same for a crowd, whose steps take longer.
const MAX_CROWD_EVENTS: u64 = 500_000;
/// Events without a completed operation after which there is no progress. Eight vCPUs need far less for one slice each,
/// some milliseconds of spin iterations.
const MAX_IDLE_STEPS: u64 = 20_000_000;
/// More of them for each vCPU of a crowd, for one of its short slices.
const MORE_IDLE_STEPS: u64 = 250_000;

impl Scenario {
    /// Simulates all operations, with no limit on events. Returns `None` if `brake` was pulled.
    pub fn run_all(
        &self,
        machine: &Machine,
        brake: &Brake,
    ) -> Result<Option<TrialOutcome>, SimSpecError> {
        self.run(machine, guest_systems, brake, u64::MAX)
    }

    /// Simulates at most `events` events with the locks of `make`. Returns `None` if `brake` was pulled.
    pub(super) fn run(
        &self,
        machine: &Machine,
        make: LockFn,
        brake: &Brake,
        events: u64,
    ) -> Result<Option<TrialOutcome>, SimSpecError> {
        let mut sim = self.sim(machine, Decisions::default(), make)?;
        sim.set_brake(brake);
        Ok(self.simulate(&mut sim, events))
    }

    /// Simulates like a search. Keeps the schedule's decisions and the last `keep` events as text.
    pub(super) fn run_recorded(
        &self,
        machine: &Machine,
        keep: usize,
    ) -> Result<(Option<TrialOutcome>, Recording, String), SimSpecError> {
        let decisions = Decisions { are_recorded: true, ..Decisions::default() };
        let mut sim = self.sim(machine, decisions, guest_systems)?;
        sim.keep_last(keep);
        let outcome = self.simulate(&mut sim, self.max_events());
        Ok((outcome, sim.recording(), sim.trace()))
    }

    /// Maximum number of events in a search.
    pub(super) const fn max_events(&self) -> u64 {
        if self.vcpus > FEW_VCPUS { MAX_CROWD_EVENTS } else { MAX_EVENTS }
    }

    fn sim(
        &self,
        machine: &Machine,
        decisions: Decisions<'_>,
        make: LockFn,
    ) -> Result<Sim, SimSpecError> {
        let make = || make(self.system, self.vcpus, self.locks, &self.handoff());
        let mut sim = Sim::with_code(&self.spec(machine), decisions, make, guest::run_operations)?;
        let more = self.vcpus.saturating_sub(FEW_VCPUS) as u64;
        sim.limit_idle_steps(MAX_IDLE_STEPS + MORE_IDLE_STEPS * more);
        if Bounds::new(self).as_head.is_some() {
            sim.watch_heads();
        }
        Ok(sim)
    }

    /// Returns `None` if its brake was pulled: the outcome is inconclusive.
    fn simulate(&self, sim: &mut Sim, events: u64) -> Option<TrialOutcome> {
        // Runs until each vCPU has ended, which shows a vCPU that is never woken.
        let end = sim.run_for_at_most(self.operations, events).and_then(|()| sim.run_to_end());
        let (figures, waits) = (sim.figures(), sim.waits());
        let trouble = self.trouble(&figures, waits, end.err());
        (end != Err(Stuck::Stopped)).then_some(TrialOutcome { trouble, figures, waits })
    }

    fn trouble(
        &self,
        figures: &SimFigures,
        waits: LongestWaits,
        stuck: Option<Stuck>,
    ) -> Option<Trouble> {
        let trouble = |kind, counted| Some(Trouble { kind, counted, most: 0 });
        match stuck {
            _ if figures.violations > 0 => {
                return trouble(TroubleKind::NotExclusive, figures.violations);
            }
            Some(Stuck::AllHalt) => return trouble(TroubleKind::AllHalt, 1),
            Some(Stuck::NoProgress(_) | Stuck::NoSteps(_) | Stuck::NoTime(_)) => {
                return trouble(TroubleKind::NoProgress, 1);
            }
            Some(Stuck::Stopped) | None => {}
        }
        if self.system.is_fifo() && figures.disorder > 0 {
            return trouble(TroubleKind::OutOfTurn, figures.disorder);
        }
        let bounds = Bounds::new(self);
        let checks = [
            (TroubleKind::PassedInLine, waits.in_line, bounds.in_line),
            (TroubleKind::PassedInLine, waits.running, bounds.running),
            (TroubleKind::PassedInLine, waits.as_head, bounds.as_head),
            (TroubleKind::PassedOutside, waits.throttled, bounds.throttled),
        ];
        checks.into_iter().find_map(|(kind, counted, most)| {
            most.filter(|most| counted > *most).map(|most| Trouble { kind, counted, most })
        })
    }
}

impl TrialOutcome {
    /// A digest of most figures. Simulations that differ in an event almost certainly have different digests.
    pub fn digest(&self) -> u64 {
        let SimFigures { time, operations, slow, halts, kicks, retries, .. } = &self.figures;
        let SimFigures { violations, disorder, spins, transfers, events, .. } = &self.figures;
        let counts =
            [time.0, *slow, *halts, *kicks, *retries, *violations, *disorder, *spins, *transfers];
        let waits = [self.waits.in_line, self.waits.throttled, self.waits.longest.0];
        let words = counts.iter().chain(operations).chain([events]).chain(&waits);
        // FNV-1a by words, with a rotation.
        words.fold(0xcbf2_9ce4_8422_2325, |digest, word| {
            (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
        })
    }
}

impl TroubleKind {
    /// The name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotExclusive => "not-exclusive",
            Self::AllHalt => "all-halt",
            Self::NoProgress => "no-progress",
            Self::OutOfTurn => "out-of-turn",
            Self::PassedInLine => "passed-in-line",
            Self::PassedOutside => "passed-outside",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, counted, most } = self;
        match kind {
            TroubleKind::NotExclusive => {
                write!(f, "two vCPUs held the lock at the same time, {}", count(*counted, "time"))
            }
            TroubleKind::AllHalt => f.write_str("all vCPUs halt: a lost wakeup"),
            TroubleKind::NoProgress => f.write_str("vCPUs run, but none acquires the lock"),
            TroubleKind::OutOfTurn => {
                write!(f, "tickets were served out of order, {}", count(*counted, "time"))
            }
            TroubleKind::PassedInLine | TroubleKind::PassedOutside => {
                let place =
                    if *kind == TroubleKind::PassedInLine { "in line" } else { "throttled" };
                let others = count(*counted, "other");
                write!(f, "{others} passed a waiter {place}, at most {most} may")
            }
        }
    }
}

/// One line: the system, its vCPUs and CPUs, the schedule, faults and noise.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, handoff, cpus, vcpus, policy, .. } = self;
        write!(f, "{system}")?;
        if *handoff != Default::default() {
            write!(f, " {handoff}")?;
        }
        write!(f, ", {} on {}, {policy}", count(*vcpus, "vCPU"), count(*cpus, "CPU"))?;
        if self.locks > 1 {
            write!(f, ", {}", count(self.locks, "lock"))?;
        }
        if self.tries {
            f.write_str(", try_lock")?;
        }
        if self.absence != 0 {
            write!(f, ", absences of {}", Nanos(self.absence))?;
        }
        if self.faults != Default::default() {
            write!(f, ", {}", self.faults)?;
        }
        self.noise.map_or(Ok(()), |noise| write!(f, ", noise {noise}"))
    }
}
