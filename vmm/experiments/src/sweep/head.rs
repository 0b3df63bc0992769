//! The head of a sweep: what was planned, and the engine that starts its tasks.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use base::{files, shown};

use super::{fix, nodes};
use crate::{
    Usage,
    open_run::default_dir,
    options::{RunOptions, SweepOptions},
    plan::{self, Plan},
    workers::KernelFiles,
};
use doctor::topology::Wanted;
use lab::{
    host::{resolve_cpus, topology},
    run::{EMULATED_HOST, estimate_cell},
    sweep::{
        Engine, EngineKind, Submission,
        dir::{SweepDir, name_of},
        local::Local,
        slurm::{self, Shape, Slurm},
        units::is_simulated,
    },
};
use machine::clock;
use study::{
    point::HostKind,
    spec::Experiment,
    store::{FILE, Store, StoreError, sweep::record::SweepLine},
};

/// A sweep as its head knows it.
#[derive(Debug)]
pub(super) struct Head {
    pub plan: Plan,
    pub sweep: SweepLine,
    pub kind: EngineKind,
    /// Where it is resumed.
    pub resumed: Option<PathBuf>,
}

impl Head {
    /// A new sweep. Writes nothing.
    pub fn planned(args: &RunOptions, kind: EngineKind) -> anyhow::Result<Self> {
        let spec = args.spec.as_deref().context("name a spec")?;
        let plan = plan::fresh(args, spec, nodes(kind), &topology())?;
        let sweep = fix::fix(&plan, args, kind)?;
        Ok(Self { plan, sweep, kind, resumed: None })
    }

    /// A sweep in its directory, with another engine if one is named. It is locked from now on.
    pub fn resumed(
        dir: &Path,
        sweep: SweepLine,
        kind: Option<&EngineKind>,
    ) -> anyhow::Result<Self> {
        let planned = stored_engine(dir, &sweep.engine)?;
        let plan = plan::resumed_sweep(dir, nodes(planned))?;
        let kind = kind.copied().unwrap_or(planned);
        Ok(Self { plan, sweep, kind, resumed: Some(dir.to_owned()) })
    }

    /// Rejects options that the engine has no use for.
    pub fn check_options(&self, args: &SweepOptions, kernels: &KernelFiles) -> Result<(), Usage> {
        let Self { kind, resumed, .. } = self;
        if resumed.is_some() {
            fix::check_kernels(kernels)?;
        }
        if let Some(options) = &args.slurm {
            if *kind != EngineKind::Slurm {
                return Err(Usage(format!("--slurm: the sweep is on {kind}; add --on slurm")));
            }
            slurm::words(options).map_err(|error| Usage(format!("--slurm: {error}")))?;
        }
        if resumed.is_some() && *kind == EngineKind::Slurm && args.slurm.is_none() {
            check_stored(&self.sweep.options)?;
        }
        if args.detach && *kind == EngineKind::Local {
            Err(Usage(
                "--detach: child processes end with this program; use --on slurm, or --on manual"
                    .into(),
            ))
        } else {
            Ok(())
        }
    }

    pub fn experiment(&self) -> &Experiment {
        &self.plan.experiment
    }

    /// The directory, with all that tasks need, and its store, which is locked.
    pub fn open(&mut self, named: Option<&Path>) -> anyhow::Result<(SweepDir, Store)> {
        if let Some((dir, store, _)) = self.plan.resumed.take() {
            let dir = SweepDir::new(&dir)?;
            // A local task gets the path as it is.
            if self.kind != EngineKind::Local {
                check_name(dir.path())?;
            }
            dir.prepare()?;
            return Ok((dir, store));
        }
        let run = self.plan.run.clone();
        let dir = named.map_or_else(|| default_dir(&run), |dir| Ok(dir.to_owned()))?;
        let store = dir.join(FILE);
        let is_there = files::is_there(&store);
        if is_there.with_context(|| format!("cannot look for {}", store.display()))? {
            bail!(StoreError::Exists(dir));
        }
        check_name(&std::path::absolute(&dir)?)?;
        let sweep = SweepDir::new(&dir)?;
        sweep.prepare()?;
        fix::keep(&sweep, &self.sweep)?;
        // Last: whatever has a store is whole.
        let store = Store::create_sweep(&dir, run, self.sweep.clone())?;
        Ok((sweep, store))
    }

    /// The engine; None if the user starts the tasks.
    pub fn engine(&self, dir: &SweepDir) -> Option<Arc<dyn Engine>> {
        match self.kind {
            EngineKind::Manual => None,
            EngineKind::Slurm => Some(Arc::new(self.slurm(dir))),
            EngineKind::Local => {
                // Measured cells would disturb each other.
                let width = if is_simulated(self.experiment()) {
                    let choice = resolve_cpus(&topology(), None, Wanted::Default);
                    choice.map_or(1, |choice| choice.cpus.cpus().len())
                } else {
                    1
                };
                Some(Arc::new(Local::new(dir.clone(), width)))
            }
        }
    }

    pub fn slurm(&self, dir: &SweepDir) -> Slurm {
        let experiment = self.experiment();
        let exclusive = !is_simulated(experiment);
        let sum = &self.sweep.binary.sha256;
        Slurm::new(dir.clone(), sum, Shape { exclusive, estimate: self.longest() })
    }

    /// How long the longest unit may take by estimate.
    pub fn longest(&self) -> Duration {
        let experiment = self.experiment();
        let cells = experiment.cells();
        let estimate = |first: u32, count: u32| {
            let cells = cells.iter().skip(first as usize).take(count as usize);
            let points = cells.map(|cell| &experiment.points[cell.point]);
            let boots = points.clone().any(|point| point.host == HostKind::Emulated);
            let boot = if boots { EMULATED_HOST } else { Duration::ZERO };
            points.map(|point| estimate_cell(experiment, point)).sum::<Duration>() + boot
        };
        let units = self.sweep.units.iter().map(|unit| estimate(unit.first, unit.cells));
        units.max().unwrap_or_default()
    }

    /// A submission of these units.
    pub fn submission(&self, number: u32, options: Option<&str>, units: Vec<u32>) -> Submission {
        Submission {
            number,
            engine: self.kind.name().to_owned(),
            options: options.map_or_else(|| self.sweep.options.clone(), str::to_owned),
            name: name_of(&self.sweep.id, number),
            units,
            at_ms: clock::since_1970(),
            job: None,
        }
    }
}

/// Schedulers and users pass names as text.
fn check_name(dir: &Path) -> Result<(), Usage> {
    let refused =
        || Usage(format!("{}: the name of a sweep's directory has to be UTF-8", dir.display()));
    dir.to_str().map(drop).ok_or_else(refused)
}

/// Refuses options of Slurm that are not taken from a sweep's directory.
fn check_stored(options: &str) -> Result<(), Usage> {
    let refused = |word: &str, reason: &str| {
        let word = shown::line(word);
        let options = shown::quoted(&shown::line(options));
        Usage(format!("{word}: {reason}; if it is yours, give it again: --slurm {options}"))
    };
    let words = slurm::words(options).map_err(|error| refused("Slurm's options", &error))?;
    match slurm::not_taken(&words) {
        Some(word) => Err(refused(word, "this option of Slurm is not taken from a directory")),
        None => Ok(()),
    }
}

/// The engine that a store's second line names.
pub(super) fn stored_engine(dir: &Path, name: &str) -> anyhow::Result<EngineKind> {
    name.parse().map_err(|error: String| {
        let (dir, error) = (dir.display(), shown::line(&error));
        anyhow!("{dir}: its second line is damaged: {error}; start the sweep anew")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_directory_are_refused_in_one_line() {
        assert!(check_stored("-p all --time=5").is_ok());
        let Usage(error) = check_stored("-p all\n--export=X=1").unwrap_err();
        assert_eq!(
            error,
            "--export=X=1: this option of Slurm is not taken from a directory; if it is yours, give it again: \
             --slurm '-p all?--export=X=1'"
        );
        assert!(check_stored("--wrap=ls").is_err());
    }

    #[test]
    fn an_unknown_engine_is_refused_in_one_line() {
        let dir = Path::new("runs");
        assert_eq!(stored_engine(dir, "slurm").unwrap(), EngineKind::Slurm);
        assert_eq!(
            stored_engine(dir, "lo\ncal").unwrap_err().to_string(),
            "runs: its second line is damaged: unknown engine 'lo?cal': local, slurm, manual; \
             start the sweep anew"
        );
    }
}
