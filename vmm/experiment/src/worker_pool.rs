//! The worker processes of a run: `pvticket cells`.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use tokio::process::Command;

use crate::{
    LinuxCell, Usage,
    engine::{
        WorkerPool,
        job::{Bytes, Extras},
    },
    inside, kernel,
    open_run::OpenRun,
    worker_process::Setup,
};
use base::{
    guest_kernel::{Flavour, GuestKernel},
    plural::count,
    units::{ByteSize, CpuList},
};
use os::{
    artifacts::{self, guest_kernel},
    memory::Memory,
    streams::eprint_line,
};
use study::{
    guest::{
        kernels::{self, KernelFile, Kernels},
        workload::GuestWorkload,
    },
    point::{GuestKind, HostKernel, HostKind, Point},
    spec::{Experiment, PlannedCell},
};

/// Selection of the traced cells.
#[derive(Debug)]
pub enum Traced {
    /// No cell.
    Nothing,
    /// The first cell of each point; traces are appended to this file.
    First(File),
    /// The last cell of each point; traces are kept in memory.
    Last(RefCell<Vec<u8>>),
}

/// Starts worker processes.
#[derive(Debug)]
pub struct Workers {
    program: PathBuf,
    /// Arguments of the workers on this host.
    direct: [OsString; 2],
    /// Arguments of the workers in the emulated host, by its kernel.
    emulated: Vec<(Option<HostKernel>, [OsString; 2])>,
    /// CPUs of each job.
    shares: Vec<Vec<usize>>,
    traced: Traced,
    /// The schedule's decisions in the last cell of the last round; None if they are not requested.
    recorded: Option<RefCell<Vec<u8>>>,
    /// Number of the last round.
    last_round: u32,
}

impl Workers {
    /// Creates the workers of this run.
    pub fn new(run: &OpenRun, traced: Traced, is_recorded: bool) -> anyhow::Result<Self> {
        let emulated = host_kernels(&run.experiment)
            .into_iter()
            .map(|kernel| Ok((kernel, Setup::new(run, HostKind::Emulated, kernel).args()?)));
        Ok(Self {
            program: env::current_exe().context("cannot find this program's own file")?,
            direct: Setup::new(run, HostKind::Direct, None).args()?,
            emulated: emulated.collect::<anyhow::Result<_>>()?,
            shares: shares(&run.cpus, run.jobs),
            traced,
            recorded: is_recorded.then(RefCell::default),
            last_round: run.experiment.repetitions.saturating_sub(1),
        })
    }

    /// Returns the traces kept in memory.
    pub fn traces(&self) -> Vec<u8> {
        match &self.traced {
            Traced::Last(traces) => traces.take(),
            Traced::Nothing | Traced::First(_) => Vec::new(),
        }
    }

    /// Returns the recording, if there is one.
    pub fn recording(&self) -> Option<Vec<u8>> {
        self.recorded.as_ref().map(RefCell::take).filter(|bytes| !bytes.is_empty())
    }
}

/// Divides the CPUs among the jobs; a single share if there are fewer CPUs than jobs.
pub(crate) fn shares(cpus: &CpuList, jobs: u32) -> Vec<Vec<usize>> {
    let cpus = cpus.cpus();
    let jobs = jobs.max(1) as usize;
    match cpus.len() / jobs {
        0 => vec![cpus.to_vec()],
        share => cpus.chunks_exact(share).take(jobs).map(<[usize]>::to_vec).collect(),
    }
}

/// Finds the kernels and the guest disk that the cells need. A missing file is an error before anything runs.
pub(crate) fn kernels(experiment: &Experiment) -> anyhow::Result<Kernels> {
    let mut files = Vec::new();
    for (kernel, flavour) in needed(experiment) {
        let named = experiment.guest_kernels.iter().find(|(named, _)| *named == kernel);
        let file = match named {
            Some((_, file)) => kernel::resolve(file, "--guest-kernel").map_err(or_built)?,
            None if kernel.is_own() => {
                bail!(or_built(Usage(format!(
                    "guest kernel {kernel}: the spec does not name its file"
                ))))
            }
            None => guest_kernel(kernel, flavour)?,
        };
        kernel::check(&file, LinuxCell::MEMORY)?;
        files.push(KernelFile::new(kernel, flavour, file));
    }
    let needs_disk =
        |point: &Point| point.guest_workload().is_some_and(GuestWorkload::needs_guest_disk);
    let disk = experiment.points.iter().any(needs_disk).then(artifacts::guest_disk).transpose()?;
    Ok(files.into_iter().collect::<Kernels>().with_guest_disk(disk))
}

/// Returns the kernels of the emulated hosts of the cells.
pub(crate) fn host_kernels(experiment: &Experiment) -> Vec<Option<HostKernel>> {
    let emulated = experiment.points.iter().filter(|point| point.host == HostKind::Emulated);
    let kernels: BTreeSet<_> = emulated.map(|point| point.host_kernel).collect();
    kernels.into_iter().collect()
}

/// Adds the alternatives to a file.
fn or_built(Usage(reason): Usage) -> Usage {
    let built = GuestKernel::ALL.map(GuestKernel::name).join(", ");
    Usage(format!("{reason} (guest kernels are {built}, and files as NAME=PATH)"))
}

/// Returns the guest kernels that the cells boot, with one flavour of each of the user's.
fn needed(experiment: &Experiment) -> Vec<(GuestKernel, Flavour)> {
    let mut needed = Vec::new();
    for point in experiment.points.iter().filter(|point| point.guest == GuestKind::Linux) {
        let Some(flavour) = kernels::flavour(point.lock) else { continue };
        let flavour = if point.guest_kernel.is_own() { Flavour::Stock } else { flavour };
        if !needed.contains(&(point.guest_kernel, flavour)) {
            needed.push((point.guest_kernel, flavour));
        }
    }
    needed
}

/// Guest memory of the largest cell in the emulated host.
pub(crate) fn memory(experiment: &Experiment, kernels: &Kernels) -> ByteSize {
    largest(experiment, kernels, HostKind::Emulated)
        .unwrap_or(ByteSize(hypercalls::payload::MEMORY))
}

/// Guest memory of the largest cell on a host; None if there is no cell.
fn largest(experiment: &Experiment, kernels: &Kernels, host: HostKind) -> Option<ByteSize> {
    let guest_memory = |point: &Point| {
        let machine = match point.guest {
            GuestKind::Payload => hypercalls::payload::MEMORY,
            GuestKind::Linux => LinuxCell::memory(point, kernels).0,
            GuestKind::Sim => 0,
        };
        machine.saturating_mul(point.sizes().count() as u64)
    };
    experiment
        .points
        .iter()
        .filter(|point| point.host == host)
        .map(guest_memory)
        .max()
        .map(ByteSize)
}

/// Warns if there is less memory than `jobs` of the largest cells in parallel may need.
pub(crate) fn warn_of_memory<'a>(
    experiment: &Experiment,
    kernels: &'a Kernels,
    jobs: usize,
    recording: Option<&'a Path>,
) {
    if let Some(guests) = largest(experiment, kernels, HostKind::Emulated) {
        let files = kernels.paths().chain(recording);
        let hosts = jobs * host_kernels(experiment).len();
        inside::warn_of_memory(inside::memory_with(guests, files), hosts);
    }
    let name = format!("the guests of {}", count(jobs, "cell"));
    let direct = largest(experiment, kernels, HostKind::Direct);
    let note = direct.and_then(|each| inside::memory_warning(&name, each, jobs, Memory::current()));
    if let Some(note) = note {
        eprint_line(format_args!("pvticket: {note}"));
    }
}

impl WorkerPool for Workers {
    fn worker(&self, host: HostKind, kernel: Option<HostKernel>) -> Command {
        let mut command = Command::new(&self.program);
        command.env(confine::SECCOMP_ENV, confine::seccomp().to_string());
        let emulated =
            self.emulated.iter().find(|(of, _)| host == HostKind::Emulated && *of == kernel);
        command.args(emulated.map_or(&self.direct, |(_, args)| args));
        command
    }

    fn cpus(&self, host: HostKind, number: usize) -> Option<Vec<usize>> {
        match host {
            HostKind::Direct => self.shares.get(number).cloned(),
            HostKind::Emulated => None,
        }
    }

    fn jobs(&self) -> usize {
        self.shares.len()
    }

    fn extras(&self, cell: &PlannedCell) -> Extras {
        let is_last = cell.round == self.last_round;
        Extras {
            trace: match self.traced {
                Traced::Nothing => false,
                Traced::First(_) => cell.round == 0,
                Traced::Last(_) => is_last,
            },
            recording: self.recorded.is_some() && is_last,
        }
    }

    fn store_trace(&self, Bytes(trace): Bytes) -> io::Result<()> {
        match &self.traced {
            Traced::First(file) => {
                (&mut &*file).write_all(&trace)?;
                file.sync_data()?;
            }
            Traced::Last(traces) => traces.borrow_mut().extend(trace),
            Traced::Nothing => {}
        }
        Ok(())
    }

    fn store_recording(&self, Bytes(recording): Bytes) {
        if let Some(recorded) = &self.recorded {
            *recorded.borrow_mut() = recording;
        }
    }
}
