//! Runs our own binary as a child process, timed from before its start.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{self, Child, ChildStdout, Command, Output, Stdio},
    thread,
    time::Duration,
};

use rustix::thread::disable_transparent_huge_pages;
use serde::Deserialize;

use super::{
    BenchError, GUEST_MEMORY, PARALLEL_GUEST_MEMORY, PARALLEL_VMMS,
    smaps::{self, VmmMemory},
};
use base::{
    io_errors::start_error,
    units::{ByteSize, Nanos, VcpuCount},
};
use confine::Seccomp;
use kvm::sys::spawn::keep_and_die_with_us;
use machine::clock::Moment;

/// Time for which a booted guest is left alone before its VMM's memory is read.
const SETTLE: Duration = Duration::from_millis(300);

/// Page sizes allowed for a child's guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Any pages that the host grants.
    AsGranted,
    /// Small pages only, as on a host without transparent huge pages.
    Small,
}

impl Pages {
    /// Whether the host grants huge pages.
    pub fn has_huge_pages() -> bool {
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        setting.is_ok_and(|setting| !setting.contains("[never]"))
    }
}

/// The fields of `boot --stats` that are used here.
#[derive(Deserialize)]
struct BootStats {
    init_at_monotonic_ns: Option<u64>,
}

/// An idle guest, whose VMM's memory is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleGuest {
    /// The tiny payload, which halts.
    Tiny,
    /// A Linux guest with this many vCPUs, whose shell waits for input.
    Linux(VcpuCount),
}

/// The binary under measurement.
#[derive(Debug)]
pub struct Binary {
    program: PathBuf,
    /// A copy of the file, whose pages no other process maps. This process and the emulated host's
    /// agent run the original.
    copy: PathBuf,
    kernel: PathBuf,
    scratch: PathBuf,
    /// Handling of system calls outside the seccomp lists.
    seccomp: Seccomp,
}

impl Binary {
    /// Copies this program, to measure it under `seccomp` with Linux guests that boot `kernel`. The
    /// directory for the copy and the children's files is removed on drop.
    pub fn new(kernel: PathBuf, seccomp: Seccomp) -> Result<Self, BenchError> {
        let program = env::current_exe().map_err(BenchError::OwnBinary)?;
        let scratch = env::temp_dir().join(format!("pvticket-bench-{}-{seccomp}", process::id()));
        let copy = scratch.join("pvticket");
        fs::create_dir(&scratch)
            .and_then(|()| fs::copy(&program, &copy))
            .map_err(|error| BenchError::Copy(copy.display().to_string(), error))?;
        Ok(Self { program, copy, kernel, scratch, seccomp })
    }

    /// Measures the time from before the start to the first byte of the tiny guest's output.
    pub fn first_output(&self) -> Result<Nanos, BenchError> {
        let mut command = self.command(&self.program);
        command.arg("tiny").stdin(Stdio::null());
        let start = Moment::now();
        let mut run = ChildRun::start(&mut command)?;
        run.wait_for_output();
        let time = Moment::now().since(start);
        run.end().map(|()| time)
    }

    /// Measures the time from before the start to the Linux guest's init.
    pub fn time_to_init(&self, vcpus: VcpuCount, pages: Pages) -> Result<Nanos, BenchError> {
        let file = self.scratch.join("stats");
        let mut command = self.boot(&self.program, vcpus, GUEST_MEMORY);
        command.arg("--stats").arg(&file).stdin(Stdio::null()).args(["--", "true"]);
        let start = Moment::now();
        ChildRun::start_with(&mut command, pages)?.end()?;
        let stats = fs::read(&file)
            .and_then(|text| serde_json::from_slice::<BootStats>(&text).map_err(io::Error::other))
            .map_err(|error| BenchError::Read(file.display().to_string(), error))?;
        let reading = stats.init_at_monotonic_ns.ok_or(BenchError::NoInit)?;
        Ok(Moment::from_nanos(Nanos(reading)).since(start))
    }

    /// Measures a VMM's memory, without its idle guest's. The VMM is the only process of its program.
    pub fn memory_alone(&self, guest: IdleGuest) -> Result<VmmMemory, BenchError> {
        self.start(guest, GUEST_MEMORY)?.measure_memory()
    }

    /// Measures the same for the last of [`PARALLEL_VMMS`] such VMMs while all run.
    pub fn memory_shared(&self, guest: IdleGuest) -> Result<VmmMemory, BenchError> {
        let start = || self.start(guest, PARALLEL_GUEST_MEMORY);
        let _idle = (1..PARALLEL_VMMS).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
        start()?.measure_memory()
    }

    /// Starts the copy, and waits until the guest reports that it is up.
    fn start(&self, guest: IdleGuest, memory: ByteSize) -> Result<IdleVmm, BenchError> {
        let (mut command, memory) = match guest {
            IdleGuest::Tiny => {
                let mut command = self.command(&self.copy);
                command.args(["tiny", "rest"]).stdin(Stdio::null());
                (command, ByteSize(hypercalls::payload::MEMORY))
            }
            IdleGuest::Linux(vcpus) => {
                let mut command = self.boot(&self.copy, vcpus, memory);
                command.stdin(Stdio::piped()).args(["--", "sh", "-c", "echo up; read line"]);
                (command, memory)
            }
        };
        keep_and_die_with_us(&mut command, Vec::new());
        let mut run = ChildRun::start(&mut command)?;
        if run.wait_for_output() {
            Ok(IdleVmm { run, memory })
        } else {
            // The VMM has ended; its stderr has the reason.
            Err(failed(&run.wait()?))
        }
    }

    fn boot(&self, program: &Path, vcpus: VcpuCount, memory: ByteSize) -> Command {
        let mut command = self.command(program);
        command
            .args(["boot", "--host", "direct", "--cpus", &vcpus.to_string()])
            .args(["--mem", &memory.0.to_string()])
            .args([OsStr::new("--kernel"), self.kernel.as_os_str()]);
        command
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env(confine::SECCOMP_ENV, self.seccomp.to_string());
        command
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// A VMM with an idle guest; dropping it kills the VMM.
struct IdleVmm {
    run: ChildRun,
    /// Size of the guest's memory.
    memory: ByteSize,
}

impl IdleVmm {
    fn measure_memory(&self) -> Result<VmmMemory, BenchError> {
        thread::sleep(SETTLE);
        smaps::vmm_memory(self.run.child.id(), self.memory)
    }
}

impl Drop for IdleVmm {
    fn drop(&mut self) {
        // Cannot fail for a child that has not been waited for.
        let _ = self.run.child.kill();
        let _ = self.run.child.wait();
    }
}

struct ChildRun {
    child: Child,
    stdout: Option<ChildStdout>,
}

impl ChildRun {
    /// Starts a child with these pages: it inherits PR_SET_THP_DISABLE (prctl(2)), which is set for this
    /// process temporarily.
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
            .map_err(|error| BenchError::Start(start_error(error)))?;
        let stdout = child.stdout.take();
        Ok(Self { child, stdout })
    }

    /// Waits for the first byte of output or the end, which [`ChildRun::end`] examines. Returns whether
    /// there was output.
    fn wait_for_output(&mut self) -> bool {
        self.stdout.as_mut().is_some_and(|stdout| matches!(stdout.read(&mut [0]), Ok(1)))
    }

    fn end(self) -> Result<(), BenchError> {
        let output = self.wait()?;
        if output.status.success() { Ok(()) } else { Err(failed(&output)) }
    }

    fn wait(mut self) -> Result<Output, BenchError> {
        // The read end stays open until the child has ended, which thus never writes to a closed pipe.
        let stdout = self.stdout.take();
        let output = self.child.wait_with_output().map_err(BenchError::Start);
        drop(stdout);
        output
    }
}

fn failed(output: &Output) -> BenchError {
    BenchError::Failed {
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
    }
}
