//! Simulates the cells of published tables.
//!
//! A table does not say how long its workload thinks and holds a lock. These times are fitted to
//! its column without overcommitment ([`Predictor::fit`]), and with them any other of its cells can be
//! simulated ([`Predictor::rate`]).

mod fit;

use thiserror::Error;

pub use fit::Fit;

use crate::published::{Cell, Setup, Table};
use crate::{Effort, Figures, Host, LineLaw, Load, Machine, Picos, Ple, Sim, Span, Spec};
use crate::{SpecError, Stuck};

/// A table that is predicted, and the one whose fit it takes.
const FITTED: [(&str, &str); 2] = [("build", "build"), ("build-haswell", "build")];

/// The tables that are predicted, each with the name of the table whose fit it takes, itself or one
/// before it.
pub fn predicted(tables: &[Table]) -> impl Iterator<Item = (&Table, &Table)> {
    let named = |name: &str| tables.iter().find(|table| table.name == name);
    FITTED.iter().filter_map(move |(name, base)| Some((named(name)?, named(base)?)))
}

/// Why a cell has no prediction.
#[derive(Debug, Error)]
pub enum PredictError {
    /// The table names a machine that is not shipped.
    #[error("a published table has the machine {0}, which is not one that comes with pvticket")]
    Machine(String),
    /// The cell is not simulated; its table says why.
    #[error("{cell} is not simulated: {why}")]
    NotSimulated {
        /// The cell.
        cell: String,
        /// As in its table.
        why: String,
    },
    /// The cell cannot be simulated.
    #[error("{cell} cannot be simulated")]
    Spec {
        /// The cell.
        cell: String,
        /// Why.
        #[source]
        source: SpecError,
    },
    /// The cell came to a standstill.
    #[error("{cell} came to a standstill")]
    Stuck {
        /// The cell.
        cell: String,
        /// How.
        #[source]
        source: Stuck,
    },
}

/// Fits and simulates the cells of one table.
#[derive(Debug)]
pub struct Predictor<'a> {
    table: &'a Table,
    machine: Machine,
}

/// How long a cell is simulated, after a tenth of it to warm up.
#[derive(Debug, Clone, Copy)]
enum Window {
    /// For so many operations: enough where no vCPU waits for a CPU.
    Operations(u64),
    /// For so long: many slices of an overcommitted host.
    Time(Picos),
}

impl Window {
    fn of_fit(effort: Effort) -> Self {
        Self::Operations(if effort == Effort::Full { 40_000 } else { 8_000 })
    }

    fn of_prediction(effort: Effort) -> Self {
        let millis = if effort == Effort::Full { 1_000 } else { 150 };
        Self::Time(Picos(millis * 1_000_000_000))
    }

    fn simulate(self, sim: &mut Sim) -> Result<Figures, Stuck> {
        let tenths = |sim: &mut Sim, tenths: u64| match self {
            Self::Operations(count) => {
                let done = sim.figures().all();
                sim.run_for(done + count * tenths / 10)
            }
            Self::Time(length) => {
                let end = sim.now() + Picos(length.0 * tenths / 10);
                sim.run_until(end)
            }
        };
        tenths(sim, 1)?;
        let before = sim.figures();
        tenths(sim, 10)?;
        Ok(sim.figures() - &before)
    }
}

impl<'a> Predictor<'a> {
    /// For the cells of `table`.
    pub fn of(table: &'a Table) -> Result<Self, PredictError> {
        let machine = Machine::shipped(&table.machine)
            .ok_or_else(|| PredictError::Machine(table.machine.clone()))?;
        Ok(Self { table, machine })
    }

    /// Simulates `cell` of the table: operations/s of all its vCPUs.
    pub fn rate(&self, cell: &Cell, fit: &Fit, effort: Effort) -> Result<f64, PredictError> {
        self.simulate(cell, fit, Window::of_prediction(effort))
    }

    fn simulate(&self, cell: &Cell, fit: &Fit, window: Window) -> Result<f64, PredictError> {
        let name = || format!("{} {}", self.table.name, cell.id);
        let stuck = |source| PredictError::Stuck { cell: name(), source };
        let setup = match &cell.setup {
            Ok(setup) => setup,
            Err(why) => {
                return Err(PredictError::NotSimulated { cell: name(), why: why.clone() });
            }
        };
        let spec = self.spec(setup, fit);
        let mut sim =
            Sim::new(&spec).map_err(|source| PredictError::Spec { cell: name(), source })?;
        let figures = window.simulate(&mut sim).map_err(stuck)?;
        sim.finish().map_err(stuck)?;
        Ok(figures.rate())
    }

    fn spec(&self, setup: &Setup, fit: &Fit) -> Spec {
        Spec {
            machine: self.machine.clone(),
            law: LineLaw::Physical,
            cpus: setup.cpus,
            guests: setup.guests,
            vcpus: setup.vcpus,
            system: setup.system,
            handoff: crate::Handoff::default(),
            spin_threshold: setup.spin_threshold,
            load: Load {
                has_data: true,
                ..Load::of(Span::Exponential(fit.think), Span::Exponential(fit.critical))
            },
            policy: setup.policy.clone(),
            slice: setup.slice,
            faults: base::faults::FaultSpec::default(),
            // Both machines have it, and KVM uses it.
            host: Host { ple: Some(Ple::default()), ..Host::default() },
            seed: 4,
            parks: true,
        }
    }
}
