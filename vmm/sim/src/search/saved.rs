//! A finding as it is saved, and its replay.

use sched::recording::Recording;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Scenario, ScenarioError, TrialOutcome, Trouble};
use crate::machine::{KeyError, Machine};
use crate::spec::SimSpecError;

/// The version of the format.
const FORMAT: u32 = 1;

/// A scenario with trouble, complete with its machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    format: u32,
    /// What is wrong.
    pub trouble: Trouble,
    /// What was simulated.
    pub scenario: Scenario,
    /// [`TrialOutcome::digest`], in hexadecimal digits.
    pub digest: String,
    /// The text of the machine file.
    machine: String,
}

/// What comes of a finding when it is simulated again.
#[derive(Debug, Clone, PartialEq)]
pub struct FindingReplay {
    /// What is wrong now.
    pub trouble: Option<Trouble>,
    /// The simulation was the same, event by event, as far as the digest tells.
    pub is_same: bool,
    /// The schedule's decisions, which other guests can replay.
    pub recording: Recording,
    /// The last events, a line each.
    pub trace: String,
}

/// Why a finding cannot be simulated again.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// Of a later version, or none.
    #[error("format {0} is not known (expected: {FORMAT})")]
    Format(u32),
    /// The finding's machine cannot be read.
    #[error("its machine")]
    Machine(#[source] KeyError),
    /// The finding's scenario is impossible.
    #[error("its scenario")]
    Scenario(#[source] ScenarioError),
    /// The scenario cannot be simulated.
    #[error(transparent)]
    Spec(#[from] SimSpecError),
}

impl Finding {
    /// `machine`: the text of its file. None: there is no trouble.
    pub fn new(scenario: Scenario, outcome: &TrialOutcome, machine: String) -> Option<Self> {
        let digest = format!("{:016x}", outcome.digest());
        Some(Self { format: FORMAT, trouble: outcome.trouble?, scenario, digest, machine })
    }

    /// The machine, if the scenario can be simulated on it.
    fn machine(&self) -> Result<Machine, ReplayError> {
        if self.format != FORMAT {
            return Err(ReplayError::Format(self.format));
        }
        let machine = Machine::parse(&self.machine).map_err(ReplayError::Machine)?;
        self.scenario.check(&machine).map_err(ReplayError::Scenario)?;
        Ok(machine)
    }

    /// Simulates it again, with a trace of so many events.
    pub fn replay(&self, traced: usize) -> Result<FindingReplay, ReplayError> {
        let (outcome, recording, trace) = self.scenario.run_kept(&self.machine()?, traced)?;
        let digest = outcome.as_ref().map(|outcome| format!("{:016x}", outcome.digest()));
        let is_same = digest.as_ref() == Some(&self.digest);
        let trouble = outcome.and_then(|outcome| outcome.trouble);
        Ok(FindingReplay { trouble, is_same, recording, trace })
    }
}
