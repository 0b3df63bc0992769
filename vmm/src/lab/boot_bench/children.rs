//! Our own binary as a child, timed from before its start.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread,
    time::Duration,
};

use rustix::thread::disable_transparent_huge_pages;
use serde::Deserialize;

use super::{
    BenchError, GUEST_MEMORY,
    smaps::{self, Outside},
};
use crate::{
    clock::Moment,
    units::{Nanos, VcpuCount},
};

/// How long a guest that is up is left alone before its VMM's memory is looked at.
const SETTLE: Duration = Duration::from_millis(300);

/// What a child's guest memory may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Whatever the host grants.
    AsGranted,
    /// Small ones alone, as in a host without transparent huge pages.
    Small,
}

impl Pages {
    /// Does this host grant others than small ones?
    pub fn are_huge_ones_granted() -> bool {
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        setting.is_ok_and(|setting| !setting.contains("[never]"))
    }
}

/// What of `boot --stats` is needed here.
#[derive(Deserialize)]
struct Stats {
    init_at_monotonic_ns: Option<u64>,
}

/// The binary under measurement.
#[derive(Debug)]
pub struct Binary {
    program: PathBuf,
    kernel: PathBuf,
    /// Where children leave their figures.
    scratch: PathBuf,
}

impl Binary {
    /// This `program`, booting `kernel`, with `scratch` as the file for figures.
    pub fn new(program: PathBuf, kernel: PathBuf, scratch: PathBuf) -> Self {
        Self { program, kernel, scratch }
    }

    /// From before the start to the first byte of the tiny guest's output.
    pub fn first_output(&self) -> Result<Nanos, BenchError> {
        let mut command = Command::new(&self.program);
        command.arg("tiny").stdin(Stdio::null());
        let start = Moment::now();
        let mut run = Run::start(&mut command)?;
        run.wait_for_output();
        let time = Moment::now().since(start);
        run.end().map(|()| time)
    }

    /// From before the start to the Linux guest's init.
    pub fn to_init(&self, vcpus: VcpuCount, pages: Pages) -> Result<Nanos, BenchError> {
        let mut command = self.boot(vcpus);
        command.arg("--stats").arg(&self.scratch).stdin(Stdio::null()).args(["--", "true"]);
        let start = Moment::now();
        Run::start_with(&mut command, pages)?.end()?;
        let stats = fs::read(&self.scratch)
            .and_then(|text| serde_json::from_slice::<Stats>(&text).map_err(io::Error::other))
            .map_err(|error| BenchError::Read(self.scratch.display().to_string(), error))?;
        let reading = stats.init_at_monotonic_ns.ok_or(BenchError::NoInit)?;
        Ok(Moment::from_reading(Nanos(reading)).since(start))
    }

    /// What the VMM holds beside guest memory while a Linux guest waits for input.
    pub fn memory(&self, vcpus: VcpuCount) -> Result<Outside, BenchError> {
        let mut command = self.boot(vcpus);
        command.stdin(Stdio::piped()).args(["--", "sh", "-c", "echo up; read line"]);
        let mut run = Run::start(&mut command)?;
        run.wait_for_output();
        thread::sleep(SETTLE);
        let outside = smaps::outside(run.child.id(), GUEST_MEMORY);
        // The end of its input ends the guest; `read` then gives 1.
        run.end_whatever()?;
        outside
    }

    fn boot(&self, vcpus: VcpuCount) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["boot", "--host", "direct", "--cpus", &vcpus.to_string()])
            .args(["--mem", &GUEST_MEMORY.0.to_string()])
            .args([OsStr::new("--kernel"), self.kernel.as_os_str()]);
        command
    }
}

/// Removes what children left.
pub(super) fn remove(scratch: &Path) {
    let _ = fs::remove_file(scratch);
}

struct Run {
    child: Child,
    stdout: Option<ChildStdout>,
}

impl Run {
    /// The setting is this process's for a moment, and the child inherits it (prctl(2),
    /// PR_SET_THP_DISABLE).
    fn start_with(command: &mut Command, pages: Pages) -> Result<Self, BenchError> {
        let set = |disable| disable_transparent_huge_pages(disable).map_err(BenchError::HugePages);
        match pages {
            Pages::AsGranted => Self::start(command),
            Pages::Small => {
                set(true)?;
                let run = Self::start(command);
                set(false)?;
                run
            }
        }
    }

    fn start(command: &mut Command) -> Result<Self, BenchError> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::Start)?;
        let stdout = child.stdout.take();
        Ok(Self { child, stdout })
    }

    /// Waits for its first byte, or its end, which [`Run::end`] looks into.
    fn wait_for_output(&mut self) {
        if let Some(stdout) = &mut self.stdout {
            let _ = stdout.read(&mut [0]);
        }
    }

    fn end(self) -> Result<(), BenchError> {
        let output = self.wait()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(BenchError::Failed {
                status: output.status,
                said: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
            }),
        }
    }

    fn end_whatever(self) -> Result<(), BenchError> {
        self.wait().map(drop)
    }

    fn wait(mut self) -> Result<Output, BenchError> {
        // Its reader stays until the end, so that the child meets no closed pipe.
        let stdout = self.stdout.take();
        let output = self.child.wait_with_output().map_err(BenchError::Start);
        drop(stdout);
        output
    }
}
