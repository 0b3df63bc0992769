//! Simulates the cells of published tables.
//!
//! A table does not state how long its workload thinks and holds a lock. These times are fitted to
//! its column without overcommitment ([`Predictor::fit`]), or follow from its [`Profile`] where that
//! column is not sufficient. With them, any other cell can be simulated ([`Predictor::predict`]).

mod fit;

use thiserror::Error;

pub use fit::Fit;

use sim::{
    Brake, HostModel, Machine, Picos, Ple, STARTS, Sim, SimFigures, SimSpecError, Spec, Stuck,
    System, handoff, profile::Profile,
};
use study::published::{Cell, CellSetup, Claim, PauseLoopExits, Table};

/// Amount of simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Short simulations and a coarse fit.
    Short,
    /// Long simulations and a fine fit: a few minutes.
    Full,
}

/// Returns the predicted tables, each with the table whose fit it uses.
pub fn predicted(tables: &[Table]) -> impl Iterator<Item = (&Table, &Table)> {
    let named = |name: &str| tables.iter().find(|table| table.name == name);
    tables.iter().filter_map(move |table| Some((table, named(table.fit.as_deref()?)?)))
}

/// Errors when predicting a cell.
#[derive(Debug, Error)]
pub enum PredictError {
    /// The table or the cell is not simulated, as its file lacks data for a simulation.
    #[error("{name} is not simulated: {reason}")]
    NotSimulated {
        /// The table or the cell.
        name: String,
        /// The missing part, or the reason that its table states.
        reason: String,
    },
    /// The cell cannot be simulated.
    #[error("{cell} cannot be simulated")]
    Spec {
        /// The cell.
        cell: String,
        /// The cause.
        #[source]
        source: SimSpecError,
    },
    /// The simulation makes no progress.
    #[error("{cell} made no progress (seed {seed})")]
    Stuck {
        /// The cell.
        cell: String,
        /// The simulation's seed.
        seed: u64,
        /// The cause.
        #[source]
        source: Stuck,
    },
}

/// Changes per operation of a lockref, which takes a reference and drops it.
const CHANGES_PER_OPERATION: f64 = 2.0;

/// Result of a cell's simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predicted {
    /// Mean operations/s of one guest.
    pub rate: f64,
    /// Failed compare-exchanges of a lockref for each change of its count; zero for other locks.
    pub retries: f64,
}

impl Predicted {
    /// Returns the figure of a row with this claim from its two cells; not finite if the base did
    /// nothing.
    pub fn value(claim: Claim, base: &Self, changed: &Self) -> f64 {
        match claim {
            Claim::Ratio(_) => changed.rate / base.rate,
            Claim::Retries(_) => base.retries,
        }
    }
}

/// Fits and simulates the cells of one table.
#[derive(Debug)]
pub struct Predictor<'a> {
    table: &'a Table,
    machine: Machine,
    profile: Profile,
    brake: Brake,
}

/// Simulated length of a cell, after all vCPUs have started and a tenth of it to warm up.
#[derive(Debug, Clone, Copy)]
enum SimulationLength {
    /// This many operations: enough if no vCPU waits for a CPU.
    Operations(u64),
    /// This much time: many slices of an overcommitted host.
    Time(Picos),
}

impl SimulationLength {
    fn of_fit(effort: Effort) -> Self {
        Self::Operations(if effort == Effort::Full { 40_000 } else { 8_000 })
    }

    fn of_prediction(setup: &CellSetup, effort: Effort) -> Self {
        let millis = match effort {
            Effort::Full if setup.all_vcpus() <= 64 => 1_000,
            // Enough for dozens of slices. More would take too long.
            Effort::Full => 300,
            Effort::Short if setup.guests == 1 => 40,
            Effort::Short => 15,
        };
        Self::Time(Picos(millis * 1_000_000_000))
    }

    fn simulate(self, sim: &mut Sim) -> Result<SimFigures, Stuck> {
        let tenths = |sim: &mut Sim, tenths: u64| match self {
            Self::Operations(count) => {
                let done = sim.figures().total();
                sim.run_for(done + count * tenths / 10)
            }
            Self::Time(length) => {
                let end = sim.now() + Picos(length.0 * tenths / 10);
                sim.run_until(end)
            }
        };
        sim.run_until(STARTS)?;
        tenths(sim, 1)?;
        let before = sim.figures();
        tenths(sim, 10)?;
        Ok(sim.figures() - &before)
    }
}

impl<'a> Predictor<'a> {
    /// Creates a predictor for the cells of `table`. Its simulations end when `brake` stops them.
    pub fn new(table: &'a Table, brake: &Brake) -> Result<Self, PredictError> {
        let lacks =
            |reason: String| PredictError::NotSimulated { name: table.name.clone(), reason };
        let machine = Machine::shipped(&table.machine)
            .ok_or_else(|| lacks(format!("there is no machine {}", table.machine)))?;
        let profile = Profile::shipped(&table.profile)
            .ok_or_else(|| lacks(format!("there is no profile {}", table.profile)))?;
        Ok(Self { table, machine, profile, brake: brake.clone() })
    }

    /// Simulates `cell` of the table.
    pub fn predict(
        &self,
        cell: &Cell,
        fit: &Fit,
        effort: Effort,
    ) -> Result<Predicted, PredictError> {
        let setup = self.setup(cell)?;
        self.simulate(cell, &setup, fit, SimulationLength::of_prediction(&setup, effort))
    }

    fn name(&self, cell: &Cell) -> String {
        format!("{} {}", self.table.name, cell.id)
    }

    fn setup(&self, cell: &Cell) -> Result<CellSetup, PredictError> {
        let not_simulated = |reason: &str| PredictError::NotSimulated {
            name: self.name(cell),
            reason: reason.to_owned(),
        };
        self.table.setup(cell).map_err(not_simulated)
    }

    /// Returns the cell's system in the library's build for simulations.
    fn system(&self, cell: &Cell, setup: &CellSetup) -> Result<System, PredictError> {
        let name = setup.system.name();
        name.parse().map_err(|_| PredictError::NotSimulated {
            name: self.name(cell),
            reason: format!("{name} is not compiled for simulations"),
        })
    }

    fn simulate(
        &self,
        cell: &Cell,
        setup: &CellSetup,
        fit: &Fit,
        window: SimulationLength,
    ) -> Result<Predicted, PredictError> {
        let name = || self.name(cell);
        let spec = self.spec(setup, self.system(cell, setup)?, fit);
        let stuck = |source| PredictError::Stuck { cell: name(), seed: spec.seed, source };
        let mut sim =
            Sim::new(&spec).map_err(|source| PredictError::Spec { cell: name(), source })?;
        sim.set_brake(&self.brake);
        let figures = window.simulate(&mut sim).map_err(stuck)?;
        sim.finish().map_err(stuck)?;
        Ok(Predicted {
            rate: figures.rate() / setup.guests as f64,
            retries: figures.per_operation(figures.retries) / CHANGES_PER_OPERATION,
        })
    }

    fn spec(&self, setup: &CellSetup, system: System, fit: &Fit) -> Spec {
        let load = self.profile.load(fit.think, fit.critical);
        Spec {
            cpus: setup.cpus,
            guests: setup.guests,
            handoff: handoff(setup.handoff),
            spin_threshold: setup.spin_threshold,
            policy: setup.policy.clone(),
            slice: setup.slice,
            host: HostModel {
                ple: self.table.pause_loop_exits.map(|exits| match exits {
                    PauseLoopExits::Dynamic => Ple::default(),
                    PauseLoopExits::Fixed => Ple::fixed(),
                }),
                noise: self.profile.noise(),
                serves_in_kernel: self.table.pause_loop_exits.is_some(),
                ..HostModel::default()
            },
            starts: STARTS,
            seed: 4,
            ..Spec::new(self.machine.clone(), system, setup.vcpus, load)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brake_ends_a_fit() {
        let tables = Table::all().expect("they can be read");
        let build = tables.iter().find(|table| table.name == "build").expect("build");
        let pulled = Brake::watching(|_| Some(Stuck::NoTime(120)));
        let fit = Predictor::new(build, &pulled).and_then(|predictor| predictor.fit(Effort::Short));
        let source = match fit {
            Err(PredictError::Stuck { source, .. }) => Some(source),
            _ => None,
        };
        assert_eq!(source, Some(Stuck::NoTime(120)));
    }

    #[test]
    fn tables_name_existing_machines_and_profiles() {
        let tables = Table::all().expect("they can be read");
        let mut simulated = 0;
        for table in &tables {
            assert!(Machine::shipped(&table.machine).is_some(), "{}", table.machine);
        }
        for (at, table) in tables.iter().enumerate() {
            let Some(fit) = &table.fit else { continue };
            let base = tables[..=at].iter().find(|candidate| candidate.name == *fit);
            let base = base.unwrap_or_else(|| panic!("{}: {fit}", table.name));
            let profile = Profile::shipped(&base.profile).expect("it is shipped");
            let is_stated = profile.times(None).is_some();
            assert!(is_stated || base.cells.iter().any(|cell| cell.is_fitted), "{}", base.name);
            simulated += usize::from(!table.simulated_cells(&table.rows).is_empty());
        }
        assert_eq!(simulated, 14, "the tables whose cells are simulated");
    }
}
