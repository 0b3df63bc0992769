//! Plans a run, from a spec or from the store of an earlier run. Writes nothing.

pub mod built_in;
mod part;
mod stored;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
    hint::spin_loop,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::bail;
use humantime::format_duration;

use crate::{
    Usage,
    cell::simulated::{machine_files, machine_text},
    cpus,
    doctor::topology::Topology,
    engine::estimate,
    host_choice::{self, GuestClass, HostKernelChoice, HostMode},
    prepare::steal_time,
};
use base::{
    chain::chain,
    files,
    guest_kernel::GuestKernel,
    plural::count,
    sanitize,
    steal_source::StealSource,
    units::{ByteSize, CpuList, Nanos},
};
use kvm::{KvmKind, caps, host::is_emulated};
use machine::clock;
use sim::Machine;
use study::{
    point::{GuestKind, HostKind, Point},
    spec::{Experiment, Form, Only, Part, Setting, SpecError},
    store::{
        Contents, Store,
        record::{FORMAT, MachineFile, RunLine},
    },
};

pub use stored::resume;

/// Maximum number of parallel cells.
pub const MAX_JOBS: u16 = 64;

/// An experiment to run, from its beginning or from where an earlier run stopped.
#[derive(Debug)]
pub struct Plan {
    pub(crate) run: RunLine,
    /// The experiment, including cells that have ended.
    pub experiment: Experiment,
    /// The directory and the store of the earlier run, with its contents.
    pub(crate) resumed: Option<(PathBuf, Store, Contents)>,
}

/// Parameters of a plan.
#[derive(Debug)]
pub struct Request {
    /// The name, unless the spec has one.
    pub name: String,
    /// The spec.
    pub spec: Form,
    /// CPUs of the vCPUs, for all jobs.
    pub cpus: CpuList,
    /// Number of parallel cells.
    pub jobs: u16,
    /// The host, unless the spec names it.
    pub host: HostMode,
    /// The emulated host's kernel.
    pub host_kernel: HostKernelChoice,
    /// Selection of the spec's cells.
    pub only: Only,
    /// The part of the run to measure; None for the complete run.
    pub part: Option<Part>,
}

impl Plan {
    /// Plans the experiment of a spec, to run from its beginning.
    pub fn new(request: Request, usage: impl FnOnce(SpecError) -> Usage) -> anyhow::Result<Self> {
        let mut run = request.first_line()?;
        let full = full_experiment(&request.spec, &run, usage)?;
        if let Some(value) = request.only.without_effect(&full.points) {
            let value = sanitize::line(&value);
            bail!(Usage(format!("--only {value}: no cell of the spec has this value")));
        }
        let experiment = select(full, &request.only, &run)?;
        if experiment.points.is_empty() {
            bail!(Usage(format!("--only {}: no cell matches", run.only.join(" --only "))));
        }
        if let Some(part) = run.part
            && u64::from(part.number()) > experiment.blocks()
        {
            let rounds = count(experiment.blocks(), "round");
            bail!(Usage(format!(
                "--part {part}: the spec has {rounds}, so at most that many parts"
            )));
        }
        let is_emulated = |point: &Point| point.host == HostKind::Emulated;
        request.host_kernel.check(experiment.points.iter().any(is_emulated))?;
        describe(&mut run, &experiment);
        Ok(Self { run, experiment, resumed: None })
    }

    /// Plans a part, whose store is in `dir`, from the existing parts.
    pub fn for_part(self, dir: &Path) -> anyhow::Result<Self> {
        part::plan_part(self, dir)
    }

    /// Adds points that are measured in the same rounds. The run cannot be resumed then.
    pub fn add(&mut self, added: Experiment) {
        let Experiment { points, machines, .. } = added;
        let base = &mut self.experiment;
        let is_new =
            |file: &MachineFile| base.machines.iter().all(|machine| machine.name != file.name);
        let machines: Vec<MachineFile> = machines.into_iter().filter(is_new).collect();
        base.machines.extend(machines);
        base.points.extend(points);
        describe(&mut self.run, &self.experiment);
    }
}

impl Request {
    /// Requests all cells of a spec, one at a time, with the default hosts and kernels.
    pub fn new(name: &str, spec: Form, cpus: CpuList) -> Self {
        Self {
            name: name.to_owned(),
            spec,
            cpus,
            jobs: 1,
            host: HostMode::Auto,
            host_kernel: HostKernelChoice::default(),
            only: Only::default(),
            part: None,
        }
    }

    /// Requests all cells of the spec in this file, or of the built-in spec with this name, on the CPUs that the
    /// user names or on a choice of CPUs.
    pub fn from_file(
        file: &Path,
        option: Option<&CpuList>,
        topology: &Topology,
        usage: impl FnOnce(SpecError) -> Usage,
    ) -> anyhow::Result<Self> {
        let (text, name) = read(file)?;
        let spec = Form::parse(&text).map_err(usage)?;
        let cpus = if spec.is_simulated() {
            simulated_cpus()?
        } else {
            cpus::choose_at_least(topology, option, spec.max_slots())?
        };
        Ok(Self::new(&name, spec, cpus))
    }

    fn first_line(&self) -> Result<RunLine, Usage> {
        let Self { cpus, jobs, .. } = self;
        let available = cpus.cpus().len();
        if available < usize::from(*jobs) {
            let reason = format!("must be at most {available}, the number of CPUs ({cpus})");
            return Err(Usage(format!("--jobs {jobs}: {reason}")));
        }
        Ok(RunLine {
            format: FORMAT,
            name: self.name.clone(),
            question: String::new(),
            spec: self.spec.text().to_owned(),
            only: self.only.texts(),
            host: self.host.name().to_owned(),
            host_kernel: self.host_kernel.kernel()?,
            guest_kernel: GuestKernel::default(),
            jobs: (*jobs).into(),
            cpus: cpus.cpus().to_vec(),
            seed: 0,
            cells: 0,
            part: self.part,
            at_ms: clock::unix_millis(),
            machines: Vec::new(),
        })
    }
}

/// Returns as many CPUs as a simulated machine can have. A cell fails if it needs more than its machine has.
fn simulated_cpus() -> Result<CpuList, Usage> {
    Ok(CpuList::new(&Vec::from_iter(0..sim::machine::MAX_CPUS))?)
}

/// Returns the CPUs that the jobs of a run share. A simulated run does not use them for vCPUs.
pub(crate) fn run_cpus(run: &RunLine, is_simulated: bool) -> Result<CpuList, Usage> {
    if is_simulated { simulated_cpus() } else { Ok(CpuList::new(&run.cpus)?) }
}

fn describe(run: &mut RunLine, experiment: &Experiment) {
    if experiment.is_simulated {
        let slots = experiment.points.iter().map(|point| point.slots as usize).max();
        run.cpus = (0..slots.unwrap_or(1)).collect();
    }
    run.name.clone_from(&experiment.name);
    run.question.clone_from(&experiment.question);
    (run.seed, run.cells) = (experiment.seed, experiment.cells().len() as u32);
    run.machines.clone_from(&experiment.machines);
}

/// Returns the spec's text, and the experiment's name from its file name.
fn read(spec: &Path) -> anyhow::Result<(String, String)> {
    /// Longer than any spec written by hand.
    const MAX_SIZE: ByteSize = ByteSize::mib(1);
    let name = spec.display().to_string();
    if let Some(text) = built_in::find(&name)
        && !spec.try_exists().unwrap_or(true)
    {
        return Ok((text.to_owned(), name));
    }
    let text = files::read_text(spec, MAX_SIZE);
    let text = text.map_err(|error| Usage(format!("{name}: {error}")))?;
    let stem = spec.file_stem().unwrap_or_default().to_string_lossy();
    let plain = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    Ok((text, plain.take(64).collect()))
}

/// Returns all points of a run's spec, even if not selected, with the cells of its part.
fn full_experiment(
    spec: &Form,
    run: &RunLine,
    usage: impl FnOnce(SpecError) -> Usage,
) -> anyhow::Result<Experiment> {
    let cpus = run_cpus(run, spec.is_simulated())?;
    let cpus = cpus.first(cpus.cpus().len() / run.jobs.max(1) as usize);
    let place = |spec: &str, _: GuestKind, needs_ring_0| place_of(spec, &run.host, needs_ring_0);
    let guest_kernel = run.guest_kernel;
    // Found once for each machine, not for each point.
    let pauses = RefCell::new(HashMap::new());
    let pause = |machine: &str| {
        let mut pauses = pauses.borrow_mut();
        *pauses.entry(machine.to_owned()).or_insert_with(|| pause_of(machine, &run.machines))
    };
    let setting = Setting {
        cpus: &cpus,
        place: &place,
        guest_kernel,
        is_emulated: is_emulated(),
        pause: &pause,
    };
    let mut experiment = Experiment::new(spec, &run.name, &setting).map_err(usage)?;
    let is_named = spec.values("told").any(|name| name == StealSource::Schedule.name());
    steal_time::check(&mut experiment.points, is_named, caps::can_intercept_msrs)?;
    Ok(Experiment { part: run.part, ..experiment })
}

/// Returns the duration of a PAUSE on a simulated machine, or on this host if the name is empty. Zero if the machine is
/// invalid, an error that is found when its file is kept.
fn pause_of(name: &str, stored: &[MachineFile]) -> Nanos {
    if name.is_empty() {
        return pause_here();
    }
    let text = stored.iter().find(|file| file.name == name).map(|file| file.text.clone());
    let machine =
        text.or_else(|| machine_text(name).ok()).and_then(|text| Machine::parse(&text).ok());
    machine.map_or(Nanos::ZERO, |machine| Nanos(machine.costs.pause.0 / 1_000))
}

/// Measures a PAUSE of this host. The least of some rounds, as interrupts and other threads only add to one.
fn pause_here() -> Nanos {
    const PAUSES: u32 = 1_000;
    let round = |_| {
        let began = Instant::now();
        (0..PAUSES).for_each(|_| spin_loop());
        Nanos((began.elapsed() / PAUSES).as_nanos() as u64)
    };
    (0..8).map(round).min().unwrap_or(Nanos::ZERO)
}

/// Returns the selected cells of a run, with the machine files that they name.
fn select(mut experiment: Experiment, only: &Only, run: &RunLine) -> anyhow::Result<Experiment> {
    experiment.retain(only);
    // Files may change or vanish. The files of a resumed run are in its store.
    experiment.machines =
        machine_files(&experiment.points, &run.machines).map_err(|error| Usage(chain(&error)))?;
    Ok(experiment)
}

/// Decides where a guest runs. The spec has priority over the command line.
fn place_of(spec: &str, requested: &str, needs_ring_0: bool) -> Result<HostKind, String> {
    let mode = match spec.parse()? {
        HostMode::Auto => requested.parse().unwrap_or(HostMode::Auto),
        mode => mode,
    };
    let class = if needs_ring_0 { GuestClass::Ring0 } else { GuestClass::Payload };
    let kind = KvmKind::detect();
    let place = host_choice::choose_here(mode, class, kind).place;
    if place == HostKind::Direct {
        host_choice::check_direct(class, kind).map_err(|error| chain(&error))?;
    }
    Ok(place)
}

impl Plan {
    pub(crate) fn finished(&self) -> HashSet<u32> {
        self.resumed.as_ref().map(|(_, _, contents)| contents.finished()).unwrap_or_default()
    }

    /// Whether every cell has ended.
    pub fn is_finished(&self) -> bool {
        self.finished().len() == self.experiment.cells().len()
    }

    /// Describes the remaining points, the number of their cells, and their estimated time.
    pub fn dry_run(&self) -> String {
        let Self { experiment, run, .. } = self;
        let finished = self.finished();
        let mut remaining: BTreeMap<usize, u32> = BTreeMap::new();
        for cell in experiment.cells().iter().filter(|cell| !finished.contains(&cell.cell)) {
            *remaining.entry(cell.point).or_default() += 1;
        }
        let mut text = String::new();
        for (point, count) in &remaining {
            let point = &experiment.points[*point];
            let place = match point.host {
                HostKind::Direct => "",
                HostKind::Emulated => " (emulated host)",
            };
            let _ = writeln!(text, "{count:4} x {point}{place}");
        }
        let cells = run.cells as usize - finished.len();
        let span = estimate(experiment, &finished, run.jobs as usize);
        let _ = writeln!(
            text,
            "{} of {}, about {}",
            count(cells, "cell"),
            count(remaining.len(), "point"),
            format_span(span)
        );
        text
    }
}

/// Formats the duration in words, in whole seconds, at least one.
pub(crate) fn format_span(span: Duration) -> String {
    format_duration(Duration::from_secs(span.as_secs().max(1))).to_string()
}

#[cfg(test)]
mod tests;
