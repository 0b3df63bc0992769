//! Opens a planned run: its store, its kernels, its trace.

use std::{
    collections::HashSet,
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufReader},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use humantime::format_rfc3339_seconds;
use rustix::system::uname;
use tempfile::TempPath;

use crate::{
    Usage,
    host::{allowed_cpus, cgroups::CgroupTree, gather_facts, with_files},
    host_choice::with_quota_note,
    plan::{Plan, run_cpus},
    prepare, programs, recording, worker_pool,
};
use base::units::CpuList;
use emulated::{Parts, PartsError};
use machine::clock;
use os::streams::eprint_line;
use report::perfetto;
use study::{
    guest::kernels::Kernels,
    point::{HostKernel, Point},
    spec::Experiment,
    store::{
        Contents, Store,
        record::{Line, RunLine, SessionLine},
    },
};

/// Default directory of runs.
pub const RUNS: &str = "runs";

/// A run whose store is open.
#[derive(Debug)]
pub struct OpenRun {
    pub(crate) experiment: Experiment,
    pub(crate) finished: HashSet<u32>,
    pub(crate) store: Store,
    /// The store's directory.
    pub dir: PathBuf,
    /// CPUs of all jobs.
    pub(crate) cpus: CpuList,
    pub(crate) jobs: u32,
    pub(crate) host_kernel: HostKernel,
    pub(crate) kernels: Kernels,
    /// The archive with the user's programs, removed when dropped.
    _programs: Option<TempPath>,
    /// The recording that a policy replays.
    pub(crate) recording: Option<PathBuf>,
    /// The file that traces are appended to.
    pub(crate) trace: Option<File>,
    /// The control groups of the cells on this host, removed when dropped.
    pub(crate) cgroups: Option<CgroupTree>,
}

impl Plan {
    /// Prepares this host, finds the kernels that the cells need, creates the store (in `named`, by
    /// default in [`RUNS`]) or repairs the store of a resumed run, opens the trace, and appends a
    /// session line to the store.
    pub fn begin(self, named: Option<&Path>, trace: Option<&Path>) -> anyhow::Result<OpenRun> {
        let finished = self.finished();
        let Self { run, experiment, resumed } = self;
        let cgroups = prepare::begin(&experiment.points, run.host_kernel, run.jobs)?;
        let programs = experiment.points.iter().filter_map(Point::program);
        let programs = programs::pack(experiment.root.as_deref(), programs)?;
        let kernels = worker_pool::kernels(&experiment)?
            .with_programs(programs.as_ref().map(|file| file.to_path_buf()));
        // Reports a missing file before a worker starts.
        let hosts = worker_pool::host_kernels(&experiment).into_iter();
        let hosts = hosts.map(|kernel| {
            let kernel = kernel.unwrap_or(run.host_kernel);
            Ok((kernel, Parts::find(kernel)?))
        });
        let hosts: Vec<(HostKernel, Parts)> = hosts.collect::<Result<_, PartsError>>()?;
        let recording = replay_file(&experiment)?;
        let (jobs, host_kernel) = (run.jobs, run.host_kernel);
        let cpus = run_cpus(&run, experiment.is_simulated)?;
        worker_pool::warn_of_memory(
            &experiment,
            &kernels,
            worker_pool::shares(&cpus, jobs).len(),
            recording.as_deref(),
        );
        let (dir, mut store) = match resumed {
            Some((dir, mut store, contents)) => {
                repair(&mut store, &contents, &dir)?;
                (dir, store)
            }
            None => {
                let dir = named.map_or_else(|| default_dir(&run), |dir| Ok(dir.to_owned()))?;
                let store = Store::create(&dir, run.clone())?;
                (dir, store)
            }
        };
        // Before the session line is appended: no session begins if a trace cannot be continued.
        let trace = trace.map(|file| open_trace(file, &finished)).transpose()?;
        let command = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let facts = if experiment.is_simulated {
            gather_facts(&allowed_cpus()?)
        } else {
            with_quota_note(gather_facts(&cpus), &cpus)
        };
        let mut host = with_files(
            facts,
            kernels.iter().map(|file| (file.kernel.to_string(), file.path())),
            hosts.iter().map(|(kernel, parts)| (kernel.to_string(), parts.kernel.as_path())),
        );
        host.node = run.part.map(|_| node());
        let session = SessionLine { at_ms: clock::unix_millis(), command, host };
        store.append(&Line::Session(Box::new(session)))?;
        Ok(OpenRun {
            experiment,
            finished,
            store,
            dir,
            cpus,
            jobs,
            host_kernel,
            kernels,
            _programs: programs,
            recording,
            trace,
            cgroups,
        })
    }
}

/// Returns this node's name. Slurm's name comes first, as several of its nodes may be one machine.
fn node() -> String {
    let name = env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty());
    name.unwrap_or_else(|| uname().nodename().to_string_lossy().into_owned())
}

/// Opens a file to append timelines to. Complete timelines of `finished` cells at its beginning are
/// kept. The rest is cut off: it begins with a cell that will run again, or with a timeline that a
/// killed program left incomplete.
fn open_trace(path: &Path, finished: &HashSet<u32>) -> anyhow::Result<File> {
    let cannot = || format!("cannot write --trace {}", path.display());
    let file = OpenOptions::new().create(true).read(true).append(true).open(path);
    let file = file.with_context(cannot)?;
    let is_finished = |cell| finished.contains(&cell);
    let length = if finished.is_empty() {
        0
    } else {
        perfetto::length_of_wanted(BufReader::new(&file), is_finished)
            .with_context(|| format!("cannot continue --trace {}", path.display()))?
    };
    file.set_len(length).with_context(cannot)?;
    Ok(file)
}

/// Returns the recording that a policy replays, if any. It must have as many slots and vCPUs as the
/// points that replay it.
fn replay_file(experiment: &Experiment) -> anyhow::Result<Option<PathBuf>> {
    let replays = |point: &Point| point.policy.replay_file().map(PathBuf::from);
    let Some(file) = experiment.points.iter().find_map(replays) else { return Ok(None) };
    let points = experiment.points.iter().filter(|point| point.policy.replay_file().is_some());
    if points.clone().any(|point| replays(point).as_ref() != Some(&file)) {
        bail!(Usage("replay: one recording at a time".into()));
    }
    recording::read_for(&file, points.map(|point| (point.slots, point.all_vcpus())))?;
    Ok(Some(file))
}

/// Cuts off an incomplete last line, and prints a note.
fn repair(store: &mut Store, contents: &Contents, dir: &Path) -> anyhow::Result<()> {
    let Some(torn) = contents.torn else { return Ok(()) };
    store.repair(torn)?;
    eprint_line(format_args!(
        "pvticket: the last line of {} was incomplete; its {} bytes are removed",
        dir.display(),
        torn.bytes
    ));
    Ok(())
}

/// Creates the default directory of a run, named after the spec and the time (UTC), with a number if
/// two runs start in the same second.
pub(crate) fn default_dir(run: &RunLine) -> anyhow::Result<PathBuf> {
    let at = UNIX_EPOCH + Duration::from_millis(run.at_ms);
    let stamp = format_rfc3339_seconds(at).to_string().replace(':', "-");
    let name = format!("{}-{}", run.name, stamp.trim_end_matches('Z'));
    unique_dir(Path::new(RUNS), &name)
}

/// Creates the directory with this name, or with a number appended if it exists.
fn unique_dir(place: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let cannot = || format!("cannot create {}", place.join(name).display());
    fs::create_dir_all(place).with_context(cannot)?;
    for number in 1_u32.. {
        let dir = match number {
            1 => place.join(name),
            _ => place.join(format!("{name}-{number}")),
        };
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|()| dir).with_context(cannot),
        }
    }
    bail!(cannot())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn runs_of_the_same_second_get_separate_directories() {
        let folder = TempDir::new().unwrap();
        let place = folder.path().join("runs");
        let dirs = ["n", "n", "m", "n"].map(|name| unique_dir(&place, name).unwrap());
        assert_eq!(dirs, ["n", "n-2", "m", "n-3"].map(|name| place.join(name)));
        let error = unique_dir(Path::new("/proc"), "n").unwrap_err();
        assert!(error.to_string().contains("/proc/n"), "{error}");
    }
}
