//! A saved finding and its replay.

use sched::recording::Recording;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Scenario, ScenarioError, TrialOutcome, Trouble};
use crate::machine::{KeyError, Machine};
use crate::spec::SimSpecError;

const FORMAT: u32 = 1;

/// A scenario with trouble, including its machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    format: u32,
    /// The trouble found.
    pub trouble: Trouble,
    /// The simulated scenario.
    pub scenario: Scenario,
    /// [`TrialOutcome::digest`] in hexadecimal.
    pub digest: String,
    /// Text of the machine file.
    machine: String,
}

/// The result of a finding's replay.
#[derive(Debug, Clone, PartialEq)]
pub struct FindingReplay {
    /// The trouble found in the replay.
    pub trouble: Option<Trouble>,
    /// Whether the simulation was identical, event by event, by its digest.
    pub is_same: bool,
    /// The schedule's decisions, for replay by other guests.
    pub recording: Recording,
    /// The last events, one per line.
    pub trace: String,
}

/// The reason why a finding cannot be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The format version is later than supported, or invalid.
    #[error("format {0} is not supported (expected: {FORMAT})")]
    Format(u32),
    /// The finding's machine is invalid.
    #[error("invalid machine")]
    Machine(#[source] KeyError),
    /// The finding's scenario is invalid.
    #[error("invalid scenario")]
    Scenario(#[source] ScenarioError),
    /// The scenario cannot be simulated.
    #[error(transparent)]
    Spec(#[from] SimSpecError),
}

impl Finding {
    /// `machine` is the text of a machine file. `None` if there is no trouble.
    pub fn new(scenario: Scenario, outcome: &TrialOutcome, machine: String) -> Option<Self> {
        let digest = format!("{:016x}", outcome.digest());
        Some(Self { format: FORMAT, trouble: outcome.trouble?, scenario, digest, machine })
    }

    /// Checks the format, parses the machine, and checks that the scenario can be simulated on it.
    fn machine(&self) -> Result<Machine, ReplayError> {
        if self.format != FORMAT {
            return Err(ReplayError::Format(self.format));
        }
        let machine = Machine::parse(&self.machine).map_err(ReplayError::Machine)?;
        self.scenario.check(&machine).map_err(ReplayError::Scenario)?;
        Ok(machine)
    }

    /// Simulates the finding again, with a trace of the last `traced` events.
    pub fn replay(&self, traced: usize) -> Result<FindingReplay, ReplayError> {
        let (outcome, recording, trace) = self.scenario.run_recorded(&self.machine()?, traced)?;
        let digest = outcome.as_ref().map(|outcome| format!("{:016x}", outcome.digest()));
        let is_same = digest.as_ref() == Some(&self.digest);
        let trouble = outcome.and_then(|outcome| outcome.trouble);
        Ok(FindingReplay { trouble, is_same, recording, trace })
    }
}
