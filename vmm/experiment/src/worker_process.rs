//! A worker process of a run, here or in the emulated host. It measures the cells that arrive on stdin.

use std::{
    env,
    ffi::OsString,
    io::{self, BufReader, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    str::FromStr,
    sync::Arc,
};

use anyhow::Context;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::{
    FAILURE, Interrupt, Usage,
    engine::{
        only_job::OnlyJob,
        relay,
        run_jobs::{self, Tools},
    },
    host::cgroups::{OpenGroups, VmGroups, create_on_own_host},
    inside::EmulatedCommand,
    open_run::OpenRun,
    prepare::{control_groups, driver},
    recording::{self, RECORDING_INSIDE},
    worker_pool::memory,
};
use base::{text, units::ByteSize};
use confine::{Class, Files, Needs};
use emulated::StdinMode;
use kvm::sys::fatal;
use os::{
    memory::{Memory, in_mib},
    signals,
    streams::{Stream, eprint_line},
};
use report::perfetto;
use sched::driver::DriverKind;
use study::{
    guest::kernels::Kernels,
    point::{HostKernel, HostKind, Point},
    timeline::Timeline,
};

/// Environment variable: a limit for the size of a trace, below the built-in limit.
const TRACE_LIMIT: &str = "PVTICKET_TRACE_LIMIT";

/// Parameters of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Host of the cells.
    host: HostKind,
    /// The kernel of the emulated host.
    #[serde(with = "text")]
    host_kernel: HostKernel,
    /// Memory that the guests need in the emulated host.
    memory: ByteSize,
    /// CPUs that the cells need in the emulated host.
    slots: u32,
    /// The guest kernels.
    kernels: Kernels,
    /// The recording that `replay` follows. Paths may not be UTF-8, which `PathBuf` refuses to serialize.
    recording: Option<OsString>,
    /// The process that changes the host's kernel (loads schedulers), which needs capabilities.
    changes: Changes,
    /// Whether some cells have one of this program's schedules.
    schedules: bool,
    /// Whether some cells observe the host's scheduler.
    observes: bool,
    /// The control groups of cells, opened before confinement.
    cgroups: Vec<VmGroups>,
    /// Directory of the groups; None if they must be created, in the emulated host.
    cgroup_root: Option<OsString>,
}

/// Process that changes the host's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Changes {
    /// No cell needs it.
    Nowhere,
    /// In a process for each cell.
    InChildren,
    /// In this process, for its only cell.
    Here,
}

impl Setup {
    /// Describes a worker for the cells of a run on `host`, with this kernel instead of the run's if it is emulated.
    pub(crate) fn new(run: &OpenRun, host: HostKind, kernel: Option<HostKernel>) -> Self {
        let points = &run.experiment.points;
        let loads_scheduler = points.iter().any(|point| needs_of(point).driver_bpf);
        let emulated = points.iter().filter(|point| point.host == HostKind::Emulated);
        let tree = run.cgroups.as_ref().filter(|_| host == HostKind::Direct);
        Self {
            host,
            host_kernel: kernel.unwrap_or(run.host_kernel),
            memory: memory(&run.experiment, &run.kernels),
            slots: emulated.map(|point| point.slots).max().unwrap_or(1),
            kernels: run.kernels.clone(),
            recording: run.recording.clone().map(OsString::from),
            changes: if loads_scheduler { Changes::InChildren } else { Changes::Nowhere },
            schedules: points.iter().any(|point| needs_of(point).schedule),
            observes: points.iter().any(Point::is_to_be_observed),
            cgroups: control_groups(points, host),
            cgroup_root: tree.map(|tree| tree.root().into()),
        }
    }

    /// Returns the directory of the control groups, and creates them if necessary. None without groups.
    fn cgroup_root(&self) -> anyhow::Result<Option<PathBuf>> {
        if self.cgroups.is_empty() {
            return Ok(None);
        }
        let created = self.cgroup_root.as_ref().map(PathBuf::from);
        Ok(Some(created.map_or_else(|| create_on_own_host(&self.cgroups), Ok)?))
    }

    fn open_cgroups(&self) -> anyhow::Result<Option<OpenGroups>> {
        let Some(root) = self.cgroup_root()? else { return Ok(None) };
        Ok(Some(OpenGroups::open(&root, &self.cgroups)?))
    }

    /// Returns the arguments of the worker's command.
    pub(crate) fn args(&self) -> anyhow::Result<[OsString; 2]> {
        let json = serde_json::to_string(self).context("cannot describe a worker")?;
        Ok(["cells".into(), json.into()])
    }
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(json: &str) -> Result<Self, String> {
        serde_json::from_str(json).map_err(|error| format!("not a worker's setup: {error}"))
    }
}

/// A worker on this host, without files.
impl Default for Setup {
    fn default() -> Self {
        Self {
            host: HostKind::Direct,
            host_kernel: HostKernel::default(),
            memory: ByteSize(0),
            slots: 1,
            kernels: Kernels::default(),
            recording: None,
            changes: Changes::Nowhere,
            schedules: false,
            observes: false,
            cgroups: Vec::new(),
            cgroup_root: None,
        }
    }
}

/// Measures the cells that arrive on stdin, one line of JSON per cell, and returns the exit status. The
/// confinement of this process must have been chosen.
pub fn run(setup: Setup) -> anyhow::Result<u8> {
    fatal::exit_at_cpu_limit();
    match setup.host {
        HostKind::Direct if setup.changes == Changes::InChildren => run_in_children(setup),
        HostKind::Direct => direct(&setup),
        HostKind::Emulated => emulated(&setup),
    }
}

fn emulated(setup: &Setup) -> anyhow::Result<u8> {
    let mut inside = EmulatedCommand::new(setup.host_kernel, setup.memory);
    // Jobs arrive on stdin.
    inside.errand().stdin = StdinMode::Inherit;
    inside.needs_cpus(setup.slots);
    let kernels = inside.take_kernels(&setup.kernels);
    let recording = setup.recording.as_ref().map(Path::new);
    let recording = recording.map(|file| inside.take(file, RECORDING_INSIDE));
    let setup_inside = Setup {
        host: HostKind::Direct,
        kernels,
        recording: recording.map(OsString::from),
        cgroup_root: None,
        ..setup.clone()
    };
    let memory = inside.errand().memory;
    let status = inside.run(setup_inside.args()?)?;
    // Only for the worker itself: processes that it starts have reported this there.
    if status == signals::status_of(Signal::KILL.as_raw()) && setup.changes != Changes::InChildren {
        eprint_line(format_args!(
            "the worker was killed in the emulated host: probably out of its {} of memory",
            in_mib(memory)
        ));
    }
    Ok(status)
}

fn run_in_children(setup: Setup) -> anyhow::Result<u8> {
    let cgroup_root = setup.cgroup_root()?.map(OsString::from);
    let cell_setup = Setup { changes: Changes::Here, cgroup_root, ..setup };
    let (program, args) =
        (env::current_exe().context("cannot find this program")?, cell_setup.args()?);
    let command = || {
        let mut command = Command::new(&program);
        command.args(&args);
        command
    };
    let interrupt = Interrupt::on_signals().context("cannot catch signals")?;
    let failed = relay::relay(command, BufReader::new(io::stdin()), &interrupt)?;
    if let Some(reason) = failed.and_then(|status| kill_reason(status, Memory::current)) {
        eprint_line(format_args!("{reason}"));
    }
    let status = failed.map(|status| match status.signal() {
        Some(signal) => signals::status_of(signal),
        None => status.code().map_or(FAILURE, |code| code as u8),
    });
    Ok(status.unwrap_or(if interrupt.raised() { FAILURE } else { 0 }))
}

/// Describes why a cell's process was killed (by a kernel without memory or a user, never by us), if it was.
fn kill_reason(status: ExitStatus, memory: impl FnOnce() -> Memory) -> Option<String> {
    let is_killed = status.signal() == Some(Signal::KILL.as_raw());
    is_killed.then(|| format!("the process of the cell was killed: {}", memory().kill_reason()))
}

fn direct(setup: &Setup) -> anyhow::Result<u8> {
    let kernels = &setup.kernels;
    let recording = setup.recording.as_ref().map(Path::new).map(recording::read).transpose()?;
    let cgroups = setup.open_cgroups()?;
    let mut input = BufReader::new(io::stdin());
    let limit = trace_limit()?;
    let draw = |run, title: &str, timeline: &Timeline| {
        let mut buffer = LimitedBuffer::new(limit);
        perfetto::write(&mut buffer, run, title, timeline)?;
        Ok(buffer.bytes)
    };
    let recording = recording.map(Arc::new);
    let recording = recording.as_ref();
    let cgroups = cgroups.as_ref();
    let tools = Tools { kernels, recording, draw: &draw, cgroups, observer: None };
    let only = match setup.changes {
        Changes::Here => OnlyJob::read(&mut input, tools)?,
        Changes::Nowhere | Changes::InChildren => None,
    };
    let (needs, observes) = match &only {
        Some(only) => (needs_of(only.point()), only.point().is_to_be_observed()),
        None => (Needs { schedule: setup.schedules, driver_bpf: false }, setup.observes),
    };
    let observer = observes.then(driver::load_observer);
    let tools = Tools { observer: observer.as_ref(), ..tools };
    let loads = needs.driver_bpf || matches!(observer, Some(Ok(_)));
    let needs = Needs { driver_bpf: loads, ..needs };
    // The signal thread starts in confinement.
    confine::apply(Class::Worker, &files(kernels), needs).context("cannot confine this process")?;
    let interrupt = Interrupt::on_signals().context("cannot catch signals")?;
    match only {
        Some(only) => only.run(tools, input, Stream::Stdout, &interrupt)?,
        None => run_jobs::work(tools, input, Stream::Stdout, &interrupt)?,
    }
    Ok(if interrupt.raised() { FAILURE } else { 0 })
}

/// Returns the needs of this point's machines.
fn needs_of(point: &Point) -> Needs {
    let driver_bpf = point.driver == DriverKind::Bpf;
    Needs { schedule: !driver_bpf && !point.policy.is_host(), driver_bpf }
}

/// Returns the files that cells open: kernels, the guest disk and programs. Their results go to stdout.
fn files(kernels: &Kernels) -> Files {
    let mut files = Files::for_guests();
    files.read.extend(kernels.paths().map(Path::to_owned));
    files
}

/// Returns the maximum size of a trace, from the environment or built in.
pub fn trace_limit() -> Result<ByteSize, Usage> {
    let set = env::var_os(TRACE_LIMIT).filter(|text| !text.is_empty());
    let Some(text) = set else { return Ok(run_jobs::MAX_TRACE) };
    let limit = text.to_str().and_then(|text| text.parse::<ByteSize>().ok());
    limit.filter(|limit| *limit <= run_jobs::MAX_TRACE).ok_or_else(|| {
        let limit = run_jobs::MAX_TRACE;
        Usage(format!("{TRACE_LIMIT}={}: not a size of at most {limit}", text.display()))
    })
}

/// A trace in memory. Writing beyond the limit fails.
#[derive(Debug)]
struct LimitedBuffer {
    bytes: Vec<u8>,
    limit: ByteSize,
}

impl LimitedBuffer {
    const fn new(limit: ByteSize) -> Self {
        Self { bytes: Vec::new(), limit }
    }
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let limit = self.limit;
        if (self.bytes.len() + bytes.len()) as u64 > limit.0 {
            let reason = format!("it is longer than {limit}; measure for a shorter time (seconds)");
            return Err(io::Error::other(reason));
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: for a cell's process that the kernel killed, only the status 137 was reported.
    #[test]
    fn killed_worker_reports_low_memory() {
        let memory = || Memory::of_host(ByteSize::mib(600));
        let reason = |status| kill_reason(ExitStatus::from_raw(status), memory);
        assert_eq!(
            reason(9).as_deref(),
            Some(
                "the process of the cell was killed: probably out of memory: this host has 600 MiB of memory and swap"
            )
        );
        assert_eq!([reason(15), reason(0), reason(9 << 8)], [const { None }; 3]);
    }

    #[test]
    fn trace_size_is_limited() {
        let mut buffer = LimitedBuffer::new(run_jobs::MAX_TRACE);
        let megabyte = vec![0; 1 << 20];
        let megabytes = (0..).take_while(|_| buffer.write_all(&megabyte).is_ok()).count();
        assert_eq!((megabytes, buffer.bytes.len() as u64), (64, run_jobs::MAX_TRACE.0));
        let error = buffer.write_all(b"x").unwrap_err().to_string();
        assert!(error.contains("longer than 64 MiB"), "{error}");
    }
}
