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

use anyhow::Context;
use tokio::process::Command;

use crate::{
    LinuxCell, Usage,
    engine::{
        WorkerPool,
        job::{Bytes, Extras},
    },
    host::kernel_facts,
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
    point::{GuestKind, HostKind, Point},
    spec::{Experiment, PlannedCell},
};

/// Guest kernels named by options.
#[derive(Debug, Clone, Default)]
pub struct KernelFiles {
    /// The kernel with ticketlocks; None for the built one.
    pub kernel: Option<PathBuf>,
    /// The kernel with mainline's spinlocks; None for the built one.
    pub stock_kernel: Option<PathBuf>,
}

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
    /// Arguments of the workers in the emulated host.
    emulated: [OsString; 2],
    /// CPUs of each job.
    shares: Vec<Vec<usize>>,
    traced: Traced,
    /// The schedule's decisions in the last cell of the last round; None if they are not requested.
    recorded: Option<RefCell<Vec<u8>>>,
    /// Number of the last round.
    last_round: u32,
}

impl KernelFiles {
    /// Whether no kernel is named.
    pub const fn is_empty(&self) -> bool {
        self.kernel.is_none() && self.stock_kernel.is_none()
    }

    /// The guests' Linux, unless the spec names it. A named file may be any Linux, which no store records.
    pub fn default_kernel(&self) -> GuestKernel {
        if self.is_empty() { GuestKernel::default() } else { GuestKernel::UNNAMED }
    }
}

impl Workers {
    /// Creates the workers of this run.
    pub fn new(run: &OpenRun, traced: Traced, is_recorded: bool) -> anyhow::Result<Self> {
        Ok(Self {
            program: env::current_exe().context("cannot find this program's own file")?,
            direct: Setup::new(run, HostKind::Direct).args()?,
            emulated: Setup::new(run, HostKind::Emulated).args()?,
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
pub(crate) fn kernels(files: &KernelFiles, experiment: &Experiment) -> anyhow::Result<Kernels> {
    let mut kernel_files = Vec::new();
    for (flavour, option) in
        [(Flavour::Ticket, &files.kernel), (Flavour::Stock, &files.stock_kernel)]
    {
        let needed = needed(experiment, flavour);
        if let Some(file) = option {
            let kernel = single_kernel(&needed, flavour)?;
            let file = kernel::resolve(file, flavour.option())?;
            check_version(&file, kernel, flavour)?;
            kernel_files.push(KernelFile::new(kernel, flavour, file));
            continue;
        }
        for kernel in needed {
            kernel_files.push(KernelFile::new(kernel, flavour, guest_kernel(kernel, flavour)?));
        }
    }
    kernel_files.iter().try_for_each(|file| kernel::check(file.path(), LinuxCell::MEMORY))?;
    let needs_disk =
        |point: &Point| point.guest_workload().is_some_and(GuestWorkload::needs_guest_disk);
    let disk = experiment.points.iter().any(needs_disk).then(artifacts::guest_disk).transpose()?;
    Ok(kernel_files.into_iter().collect::<Kernels>().with_guest_disk(disk))
}

/// Refuses a named file that reports another Linux than requested. Without a request, the file is not read.
fn check_version(file: &Path, kernel: GuestKernel, flavour: Flavour) -> Result<(), Usage> {
    if kernel.is_unnamed() {
        return Ok(());
    }
    let version = kernel_facts(file).and_then(|facts| facts.version);
    let is_other = |version: &String| {
        let suffix = version.strip_prefix(kernel.name());
        !suffix.is_some_and(|suffix| suffix.starts_with(['.', '-']))
    };
    match version.filter(is_other) {
        None => Ok(()),
        Some(version) => Err(Usage(format!(
            "{} {}: it is Linux {version}, but guest kernel {kernel} was requested",
            flavour.option(),
            file.display()
        ))),
    }
}

/// Returns the single kernel that a named file stands for.
fn single_kernel(needed: &BTreeSet<GuestKernel>, flavour: Flavour) -> Result<GuestKernel, Usage> {
    let option = flavour.option();
    let mut kernels = needed.iter();
    match (kernels.next(), kernels.next()) {
        (Some(kernel), None) => Ok(*kernel),
        (None, _) => Err(Usage(format!(
            "{option}: none of the requested locks uses it; --kernel is for ticket and \
             pv-ticket of Linux guests, --stock-kernel for their other locks"
        ))),
        (Some(_), Some(_)) => {
            let names: Vec<&str> = needed.iter().map(|kernel| kernel.name()).collect();
            Err(Usage(format!(
                "{option}: names one kernel, but guest kernels {} are requested: name no file, or \
                 one guest kernel",
                names.join(", ")
            )))
        }
    }
}

/// Returns the guest kernels of this flavour that the cells boot.
fn needed(experiment: &Experiment, flavour: Flavour) -> BTreeSet<GuestKernel> {
    let needs = |point: &&Point| {
        point.guest == GuestKind::Linux && kernels::flavour(point.lock) == Some(flavour)
    };
    experiment.points.iter().filter(needs).map(|point| point.guest_kernel).collect()
}

/// Guest memory of the largest cell in the emulated host.
pub(crate) fn memory(experiment: &Experiment) -> ByteSize {
    largest(experiment, HostKind::Emulated).unwrap_or(ByteSize(hypercalls::payload::MEMORY))
}

/// Guest memory of the largest cell on a host; None if there is no cell.
fn largest(experiment: &Experiment, host: HostKind) -> Option<ByteSize> {
    let guest_memory = |point: &Point| {
        let machine = match point.guest {
            GuestKind::Payload => hypercalls::payload::MEMORY,
            GuestKind::Linux => LinuxCell::memory(point).0,
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
    jobs: usize,
    files: impl IntoIterator<Item = &'a Path>,
) {
    if let Some(guests) = largest(experiment, HostKind::Emulated) {
        inside::warn_of_memory(inside::memory_with(guests, files), jobs);
    }
    let name = format!("the guests of {}", count(jobs, "cell"));
    let direct = largest(experiment, HostKind::Direct);
    let note = direct.and_then(|each| inside::memory_warning(&name, each, jobs, Memory::current()));
    if let Some(note) = note {
        eprint_line(format_args!("pvticket: {note}"));
    }
}

impl WorkerPool for Workers {
    fn worker(&self, host: HostKind) -> Command {
        let mut command = Command::new(&self.program);
        command.env(confine::SECCOMP_ENV, confine::seccomp().to_string());
        command.args(match host {
            HostKind::Direct => &self.direct,
            HostKind::Emulated => &self.emulated,
        });
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
