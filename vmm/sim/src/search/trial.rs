//! One simulation, and what is wrong with it.

use std::fmt;

use base::plural::count;
use serde::{Deserialize, Serialize};

use super::bound::Bounds;
use super::{Make, Scenario};
use sched::recording::Recording;

use crate::engine::{Sim, Stuck};
use crate::figures::SimFigures;
use crate::guest::{self, LongestWaits, subjects};
use crate::machine::Machine;
use crate::spec::SimSpecError;
use crate::{Brake, Decisions};

/// Kinds of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// Two vCPUs had the lock at once.
    NotExclusive,
    /// All vCPUs halt, and no kick is on its way.
    AllHalt,
    /// vCPUs run, and none completes an operation.
    NoProgress,
    /// Tickets were not served in turn.
    OutOfTurn,
    /// A waiter in line was passed more often than the lock promises.
    PassedInLine,
    /// A waiter outside of a limited queue was passed more often than the lock promises.
    PassedOutside,
}

/// Something that must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trouble {
    /// Its kind.
    pub kind: TroubleKind,
    /// How often it happened, or how often a waiter was passed.
    pub counted: u64,
    /// How often a waiter may be passed.
    pub most: u64,
}

/// What came of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialOutcome {
    /// What is wrong.
    pub trouble: Option<Trouble>,
    /// All figures, up to the end or the standstill.
    pub figures: SimFigures,
    /// The longest waits.
    pub waits: LongestWaits,
}

/// Events after which a simulation ends although operations are missing: a second or so. With many
/// vCPUs on few CPUs some locks hardly get on.
pub(super) const MOST_EVENTS: u64 = 10_000_000;
/// Events for each of its vCPUs, but as for eight at least, in which it completes no operation, after which
/// it makes no progress: far more than they need to have a turn each, some milliseconds of looks.
const MOST_IDLE: u64 = 2_500_000;

impl Scenario {
    /// Simulates it to the end of all of its operations, however many events that takes. None: `brake` was pulled.
    pub fn run_whole(
        &self,
        machine: &Machine,
        brake: &Brake,
    ) -> Result<Option<TrialOutcome>, SimSpecError> {
        self.run(machine, subjects, brake, u64::MAX)
    }

    /// Simulates it with the locks of `make`, and so many events at most. None: `brake` was pulled.
    pub(super) fn run(
        &self,
        machine: &Machine,
        make: Make,
        brake: &Brake,
        events: u64,
    ) -> Result<Option<TrialOutcome>, SimSpecError> {
        let mut sim = self.sim(machine, Decisions::default(), make)?;
        sim.obey(brake);
        Ok(self.simulate(&mut sim, events))
    }

    /// Simulates it as a search does, and keeps the schedule's decisions and the last `keep` events, in words.
    pub(super) fn run_kept(
        &self,
        machine: &Machine,
        keep: usize,
    ) -> Result<(Option<TrialOutcome>, Recording, String), SimSpecError> {
        let decisions = Decisions { are_kept: true, ..Decisions::default() };
        let mut sim = self.sim(machine, decisions, subjects)?;
        sim.keep_last(keep);
        let outcome = self.simulate(&mut sim, MOST_EVENTS);
        Ok((outcome, sim.recording(), sim.trace()))
    }

    fn sim(
        &self,
        machine: &Machine,
        decisions: Decisions<'_>,
        make: Make,
    ) -> Result<Sim, SimSpecError> {
        let make = || make(self.system, self.vcpus, self.locks, &self.handoff());
        let mut sim = Sim::with(&self.spec(machine), decisions, make, guest::rounds)?;
        sim.give_up_after(MOST_IDLE * self.vcpus.max(8) as u64);
        Ok(sim)
    }

    /// None: its brake was pulled, and it says nothing.
    fn simulate(&self, sim: &mut Sim, events: u64) -> Option<TrialOutcome> {
        // To the end of each vCPU: one that will never be woken shows there.
        let end = sim.run_for_at_most(self.operations, events).and_then(|()| sim.run_out());
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
        let bounds = Bounds::of(self)?;
        let passed =
            |kind, counted, most| (counted > most).then_some(Trouble { kind, counted, most });
        passed(TroubleKind::PassedInLine, waits.in_line, bounds.in_line).or_else(|| {
            passed(TroubleKind::PassedOutside, waits.outside, bounds.outside.unwrap_or(u64::MAX))
        })
    }
}

impl TrialOutcome {
    /// A digest of all figures: two simulations that differ in an event hardly have the same.
    pub fn digest(&self) -> u64 {
        let SimFigures { time, operations, slow, halts, kicks, retries, .. } = &self.figures;
        let SimFigures { violations, disorder, looks, transfers, events, .. } = &self.figures;
        let counts =
            [time.0, *slow, *halts, *kicks, *retries, *violations, *disorder, *looks, *transfers];
        let waits = [self.waits.in_line, self.waits.outside, self.waits.longest.0];
        let all = counts.iter().chain(operations).chain([events]).chain(&waits);
        // FNV-1a, by words.
        all.fold(0xcbf2_9ce4_8422_2325, |digest, word| {
            (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
        })
    }
}

impl TroubleKind {
    /// The name in files.
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
                write!(f, "two vCPUs had the lock at once, {}", count(*counted, "time"))
            }
            TroubleKind::AllHalt => f.write_str("all vCPUs halt, a wakeup is lost"),
            TroubleKind::NoProgress => f.write_str("vCPUs run and none gets the lock"),
            TroubleKind::OutOfTurn => {
                write!(f, "tickets were served out of turn, {}", count(*counted, "time"))
            }
            TroubleKind::PassedInLine | TroubleKind::PassedOutside => {
                let place = if *kind == TroubleKind::PassedInLine { "in line" } else { "outside" };
                let others = count(*counted, "other");
                write!(f, "{others} came before a waiter {place}, promised are {most}")
            }
        }
    }
}

/// In a line: the system, the machine's share of it, the schedule.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, handoff, cpus, vcpus, policy, .. } = self;
        write!(f, "{system}")?;
        if *handoff != Default::default() {
            write!(f, " {handoff}")?;
        }
        write!(f, ", {} on {}, {policy}", count(*vcpus, "vCPU"), count(*cpus, "CPU"))?;
        if self.faults != Default::default() {
            write!(f, ", {}", self.faults)?;
        }
        self.noise.map_or(Ok(()), |noise| write!(f, ", noise {noise}"))
    }
}
