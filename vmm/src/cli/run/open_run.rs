//! What a run begins with: a spec, or a store that has one.

use std::{
    collections::{BTreeMap, HashSet},
    env,
    fmt::Write as _,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use humantime::{format_duration, format_rfc3339_seconds};

use super::{MOST_JOBS, RunArgs, ready, shown, workers};
use crate::{
    cli::{
        Usage,
        host::{self, GuestClass, HostMode, Place},
        say, trace,
    },
    clock, files,
    guest::kernels::Kernels,
    kvm::KvmKind,
    lab::{
        host::HostFacts,
        plan::resolve_cpus,
        point::{GuestKind, HostKind},
        run::estimate,
        spec::{Experiment, Only, Setting},
        store::{
            Contents, Store,
            record::{FORMAT, Line, Outcome, RunLine, SessionLine},
        },
    },
    units::{ByteSize, CpuList},
};

/// Where runs are kept when nobody says.
pub(in crate::cli) const RUNS: &str = "runs";

/// An experiment to run, from its beginning or from where it was left.
#[derive(Debug)]
pub(super) struct Plan {
    run: RunLine,
    experiment: Experiment,
    resumed: Option<(PathBuf, Store, Contents)>,
}

/// A run whose store is open.
#[derive(Debug)]
pub(super) struct OpenRun {
    pub(super) experiment: Experiment,
    pub(super) finished: HashSet<u32>,
    /// How many of them failed.
    pub(super) failed: u32,
    pub(super) store: Store,
    pub(super) dir: PathBuf,
    /// CPUs of one job.
    pub(super) cpus: CpuList,
    pub(super) jobs: u32,
    /// Those that the cells need.
    pub(super) kernels: Kernels,
    /// What traces are appended to.
    pub(super) trace: Option<File>,
}

/// Reads what is to be run. Nothing is written yet.
pub(super) fn plan(args: &RunArgs) -> anyhow::Result<Plan> {
    match (&args.resume, &args.spec) {
        (Some(dir), _) => resumed(dir),
        (None, Some(spec)) => fresh(args, spec),
        (None, None) => bail!(Usage("name a spec, or --resume DIR".into())),
    }
}

fn fresh(args: &RunArgs, spec: &Path) -> anyhow::Result<Plan> {
    let (text, name) = read(spec)?;
    let cpus = resolve_cpus(args.cpus.clone()).map_err(|error| Usage(error.to_string()))?;
    let share = cpus.cpus().len() / usize::from(args.jobs);
    if share == 0 {
        let there = cpus.cpus().len();
        bail!(Usage(format!("--jobs {}: at most {there}, the CPUs there are ({cpus})", args.jobs)));
    }
    let mut run = RunLine {
        format: FORMAT,
        name,
        question: String::new(),
        spec: text,
        only: Only::new(args.only.clone()).texts(),
        host: mode_name(args.host).to_owned(),
        jobs: args.jobs.into(),
        cpus: cpus.cpus().to_vec(),
        seed: 0,
        cells: 0,
        at_ms: clock::since_1970(),
    };
    let at = shown(spec);
    let experiment = experiment(&run, |error| Usage(format!("{at}: {error}")))?;
    if experiment.points.is_empty() {
        bail!(Usage(format!("--only {}: no cell is like that", run.only.join(" --only "))));
    }
    run.name.clone_from(&experiment.name);
    run.question.clone_from(&experiment.question);
    (run.seed, run.cells) = (experiment.seed, experiment.cells().len() as u32);
    Ok(Plan { run, experiment, resumed: None })
}

fn resumed(dir: &Path) -> anyhow::Result<Plan> {
    let (store, contents) = Store::resume(dir)?;
    let run = contents.run.clone();
    if let Some(why) = contradiction(&run) {
        bail!("{}: its first line is damaged: {why}; begin the run anew", dir.display());
    }
    let experiment =
        experiment(&run, |error| Usage(format!("{}: its spec: {error}", dir.display())))?;
    let cells = experiment.cells();
    let is_same = !cells.is_empty()
        && cells.len() == run.cells as usize
        && experiment.seed == run.seed
        && contents.cells.iter().all(|line| {
            let planned = &cells[line.cell as usize];
            line.round == planned.round && line.point == experiment.points[planned.point]
        });
    if !is_same {
        bail!(
            "{}: on this host its spec comes to other cells than where it was begun; begin it anew",
            dir.display()
        );
    }
    Ok(Plan { run, experiment, resumed: Some((dir.to_owned(), store, contents)) })
}

/// What cannot be in a run's first line, as `fresh` would not have written it.
fn contradiction(run: &RunLine) -> Option<String> {
    let RunLine { jobs, host, cpus, .. } = run;
    let there = match CpuList::new(cpus) {
        Ok(list) => list.cpus().len(),
        Err(error) => return Some(error.to_string()),
    };
    let most = there.min(usize::from(MOST_JOBS));
    if !(1..=most).contains(&(*jobs as usize)) {
        return Some(format!("{jobs} jobs, of 1 to {most}"));
    }
    let is_mode = [HostMode::Auto, HostMode::Direct, HostMode::Emulated].map(mode_name);
    (!is_mode.contains(&host.as_str())).then(|| format!("'{host}' is no host"))
}

/// The spec's text, and the name it has by its file.
fn read(spec: &Path) -> anyhow::Result<(String, String)> {
    /// Longer than any that a person wrote.
    const LONGEST: ByteSize = ByteSize::mib(1);
    let name = shown(spec);
    if let Some(text) = ready::find(&name)
        && !spec.exists()
    {
        return Ok((text.to_owned(), name));
    }
    let text = files::read_text(spec, LONGEST);
    let text = text.map_err(|error| Usage(format!("{name}: {error}")))?;
    let stem = spec.file_stem().unwrap_or_default().to_string_lossy();
    let plain = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    Ok((text, plain.take(64).collect()))
}

fn experiment(
    run: &RunLine,
    usage: impl FnOnce(&dyn std::fmt::Display) -> Usage,
) -> anyhow::Result<Experiment> {
    let share = run.cpus.len() / run.jobs.max(1) as usize;
    let cpus = CpuList::new(&run.cpus).map(|cpus| cpus.first(share));
    let cpus = match cpus {
        Ok(cpus) => cpus,
        Err(error) => bail!(usage(&error)),
    };
    resolve_cpus(Some(cpus.clone())).map_err(|error| Usage(error.to_string()))?;
    let place = |spec: &str, _: GuestKind, needs_ring_0| place(spec, &run.host, needs_ring_0);
    let setting = Setting { cpus: &cpus, place: &place };
    let mut experiment = match Experiment::parse(&run.spec, &run.name, &setting) {
        Ok(experiment) => experiment,
        Err(error) => bail!(usage(&error)),
    };
    experiment.retain(&Only::parse(&run.only).map_err(|error| Usage(error.to_string()))?);
    Ok(experiment)
}

const fn mode_name(mode: HostMode) -> &'static str {
    match mode {
        HostMode::Auto => "auto",
        HostMode::Direct => "direct",
        HostMode::Emulated => "emulated",
    }
}

/// Where a guest runs. What the spec says goes before the command line.
fn place(spec: &str, asked: &str, needs_ring_0: bool) -> Result<HostKind, String> {
    let mode = match (spec, asked) {
        ("direct", _) | ("auto", "direct") => HostMode::Direct,
        ("emulated", _) | ("auto", "emulated") => HostMode::Emulated,
        ("auto", _) => HostMode::Auto,
        (other, _) => return Err(format!("'{other}' is no host: auto, direct or emulated")),
    };
    let class = if needs_ring_0 { GuestClass::Ring0 } else { GuestClass::Payload };
    let kind = KvmKind::detect();
    match host::choose(mode, class, kind).place {
        Place::Direct => {
            host::check_direct(class, kind).map_err(|error| error.to_string())?;
            Ok(HostKind::Direct)
        }
        Place::Emulated => Ok(HostKind::Emulated),
    }
}

impl Plan {
    fn finished(&self) -> HashSet<u32> {
        self.resumed.as_ref().map(|(_, _, contents)| contents.finished()).unwrap_or_default()
    }

    fn failed(&self) -> u32 {
        let cells = self.resumed.iter().flat_map(|(_, _, contents)| &contents.cells);
        cells.filter(|cell| matches!(cell.outcome, Outcome::Failed { .. })).count() as u32
    }

    /// The points, how many cells that is, and how long they may take.
    pub(super) fn dry_run(&self) -> String {
        let Self { experiment, run, .. } = self;
        let finished = self.finished();
        let mut left: BTreeMap<usize, u32> = BTreeMap::new();
        for cell in experiment.cells().iter().filter(|cell| !finished.contains(&cell.cell)) {
            *left.entry(cell.point).or_default() += 1;
        }
        let mut text = String::new();
        for (point, count) in &left {
            let point = &experiment.points[*point];
            let at = match point.host {
                HostKind::Direct => "",
                HostKind::Emulated => " (emulated host)",
            };
            let _ = writeln!(text, "{count:4} x {point}{at}");
        }
        let count = run.cells as usize - finished.len();
        let span = estimate(experiment, &finished, run.jobs as usize);
        let _ = writeln!(text, "{count} cells of {} points, about {}", left.len(), spoken(span));
        text
    }

    /// Finds what the cells need, makes or opens the store, and says in it that somebody goes to
    /// work.
    pub(super) fn begin(self, args: &RunArgs) -> anyhow::Result<OpenRun> {
        let finished = self.finished();
        let failed = self.failed();
        let Self { run, experiment, resumed } = self;
        let kernels = workers::kernels(args, &experiment)?;
        let (jobs, cpus) = (run.jobs, CpuList::new(&run.cpus)?);
        let (dir, mut store) = match resumed {
            Some((dir, mut store, contents)) => {
                repair(&mut store, &contents, &dir)?;
                (dir, store)
            }
            None => {
                let dir = args.dir.clone().map_or_else(|| default_dir(&run), Ok)?;
                let store = Store::create(&dir, run)?;
                (dir, store)
            }
        };
        // Before the store tells of this start: what is no trace is not gone on with.
        let trace = args.trace.as_ref().map(|file| trace::appended(file, &finished)).transpose()?;
        let command = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let host = HostFacts::gather(&cpus).with_files(
            [&kernels.ticket, &kernels.stock].into_iter().flatten().map(PathBuf::as_path),
        );
        let session = SessionLine { at_ms: clock::since_1970(), command, host };
        store.append(&Line::Session(Box::new(session)))?;
        Ok(OpenRun { experiment, finished, failed, store, dir, cpus, jobs, kernels, trace })
    }
}

/// Cuts off a last line that was torn, and says so.
fn repair(store: &mut Store, contents: &Contents, dir: &Path) -> anyhow::Result<()> {
    let Some(torn) = contents.torn else { return Ok(()) };
    store.repair(torn)?;
    say(format_args!(
        "pvticket: the last line of {} was torn; {} bytes of it are cut off",
        dir.display(),
        torn.bytes
    ));
    Ok(())
}

/// Makes one of its own for each run: named like the spec and by its time (UTC), and where two
/// begin in one second, by a number.
fn default_dir(run: &RunLine) -> anyhow::Result<PathBuf> {
    let at = UNIX_EPOCH + Duration::from_millis(run.at_ms);
    let stamp = format_rfc3339_seconds(at).to_string().replace(':', "-");
    let name = format!("{}-{}", run.name, stamp.trim_end_matches('Z'));
    own_dir(Path::new(RUNS), &name)
}

/// Makes the directory of that name, or where it is there already, with a number behind it.
fn own_dir(place: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let cannot = || format!("cannot make {}", place.join(name).display());
    fs::create_dir_all(place).with_context(cannot)?;
    for number in 1_u32.. {
        let dir = match number {
            1 => place.join(name),
            _ => place.join(format!("{name}-{number}")),
        };
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| dir).with_context(cannot),
        }
    }
    bail!(cannot())
}

/// To whole seconds.
fn spoken(span: Duration) -> String {
    format_duration(Duration::from_secs(span.as_secs().max(1))).to_string()
}

#[cfg(test)]
mod tests;
