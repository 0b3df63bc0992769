//! Overhead of the VMM itself: time to the guest's first output, time to a Linux guest's init,
//! memory without the guest's, and cost of a port exit.
//!
//! A round measures each once (exits three times). Rounds are repeated, so that slow changes of the
//! host affect all figures alike. A first round warms the page cache and is discarded.
//!
//! Memory is read while a guest is idle, in two situations: for a VMM that is the only process of its program, so
//! that no page is shared, and for the last of ten VMMs, which share the program's pages (with Linux guests only
//! after the last round). Both run a copy of the program's file, because this process maps the file itself.

mod children;
pub mod exits;
mod quantity;
mod smaps;

pub use children::{Binary, IdleGuest, Pages};
pub use exits::ExitPair;
pub use quantity::BootQuantity;
pub use smaps::VmmMemory;

use std::{io, path::PathBuf, process::ExitStatus};

use serde::Serialize;
use thiserror::Error;

use base::units::{ByteSize, UnitError, VcpuCount};
use confine::{ConfineError, Files};
use kvm::{KvmError, signal};
use machine::{guest::payload::SharedError, vm::VmError};

/// Memory of the Linux guests.
pub const GUEST_MEMORY: ByteSize = ByteSize::mib(512);

/// VMMs that run in parallel when the last one's memory is measured.
pub const PARALLEL_VMMS: usize = 10;

/// Memory of each Linux guest of [`PARALLEL_VMMS`]. The VMM's own memory does not depend on it, and
/// all must fit.
pub const PARALLEL_GUEST_MEMORY: ByteSize = ByteSize::mib(128);

/// Pairs of loops per round: the difference is small, and each pair is short.
const EXIT_PAIRS: u32 = 3;

/// Errors when running the benchmark.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The path of our own binary is unknown.
    #[error("cannot find this program's own file")]
    OwnBinary(#[source] io::Error),
    /// The binary cannot be copied.
    #[error("cannot create {0}, a copy of this program")]
    Copy(String, #[source] io::Error),
    /// A child cannot be started.
    #[error("cannot run this program")]
    Start(#[source] io::Error),
    /// A child failed.
    #[error("a measured run failed ({status}): {stderr}")]
    Failed {
        /// Exit status of the run.
        status: ExitStatus,
        /// The run's stderr output.
        stderr: String,
    },
    /// A file cannot be read.
    #[error("cannot read {0}")]
    Read(String, #[source] io::Error),
    /// Huge pages cannot be turned off for a child.
    #[error("cannot disable huge pages for a measured run")]
    HugePages(#[source] rustix::io::Errno),
    /// The guest's init did not report its start.
    #[error("the guest did not report the start of its init; boot it with pvticket's initrd")]
    NoInit,
    /// The guest's memory was not found among the mappings.
    #[error("found {mapped} of guest memory in the VMM's mappings instead of {expected}")]
    GuestMemory {
        /// The size in the mappings.
        mapped: ByteSize,
        /// The size of the guest's memory.
        expected: ByteSize,
    },
    /// The thread of a vCPU cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The thread that measures exits cannot be confined.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The payload caused no exits in time.
    #[error("the guest caused no VM exits")]
    NoExits,
    /// The CPU to measure on is invalid.
    #[error(transparent)]
    Cpu(#[from] UnitError),
    /// A VM failed.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A KVM call failed.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The block of memory shared with the payload is invalid.
    #[error(transparent)]
    Shared(#[from] SharedError),
}

/// Parameters of the benchmark.
#[derive(Debug)]
pub struct BenchPlan {
    /// Number of rounds, excluding the discarded one.
    pub runs: u32,
    /// Kernel of the Linux guests; None to measure no Linux guests.
    pub kernel: Option<PathBuf>,
    /// vCPUs of the Linux guests.
    pub vcpus: Vec<VcpuCount>,
}

/// All samples, in the order of the rounds.
#[derive(Debug, Default, Serialize)]
pub struct BootFigures {
    /// Nanoseconds from start to the tiny guest's first output.
    pub first_output_ns: Vec<u64>,
    /// Memory of the tiny guest's VMM without the guest's, while the guest halts.
    pub tiny_memory: MemoryFigures,
    /// Figures of the Linux guests.
    pub linux: Vec<LinuxFigures>,
    /// Costs of port exits.
    pub exits: Vec<ExitPair>,
}

/// The samples of Linux guests with one number of vCPUs.
#[derive(Debug, Serialize)]
pub struct LinuxFigures {
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Nanoseconds from start to the guest's init.
    pub to_init_ns: Vec<u64>,
    /// The same with small pages only; empty where the host grants no huge pages.
    pub to_init_small_pages_ns: Vec<u64>,
    /// Memory of the VMM without the guest's, while the guest is idle.
    pub memory: MemoryFigures,
}

/// Memory of the VMMs of one kind of guest, without the guest's.
#[derive(Debug, Default, Serialize)]
pub struct MemoryFigures {
    /// For a VMM that is the only process of its program.
    pub alone: Vec<VmmMemory>,
    /// For the last of [`PARALLEL_VMMS`] VMMs.
    pub tenth: Vec<VmmMemory>,
}

/// Runs the benchmark. Calls `round` with the number of each round, from 1.
pub fn run(plan: &BenchPlan, mut round: impl FnMut(u32)) -> Result<BootFigures, BenchError> {
    let binary = Binary::new(plan.kernel.clone().unwrap_or_default(), confine::seccomp())?;
    // The last CPU, as interrupts tend to use the first ones.
    let cpu = signal::allowed_cpus().pop().unwrap_or(0);

    one_round(plan, &binary, cpu, 0, &mut plan.empty())?;
    let mut figures = plan.empty();
    for number in 1..=plan.runs {
        round(number);
        one_round(plan, &binary, cpu, number, &mut figures)?;
    }
    // Only once: it takes ten boots, and the memory that ten processes share does not vary.
    if let Some((vcpus, linux)) = plan.vcpus.iter().zip(&mut figures.linux).next() {
        linux.memory.tenth.push(binary.memory_shared(IdleGuest::Linux(*vcpus))?);
    }
    Ok(figures)
}

impl BenchPlan {
    fn empty(&self) -> BootFigures {
        let empty = |vcpus: &VcpuCount| LinuxFigures {
            vcpus: vcpus.get(),
            to_init_ns: Vec::new(),
            to_init_small_pages_ns: Vec::new(),
            memory: MemoryFigures::default(),
        };
        let linux = match self.kernel {
            Some(_) => self.vcpus.iter().map(empty).collect(),
            None => Vec::new(),
        };
        BootFigures { linux, ..BootFigures::default() }
    }
}

fn one_round(
    plan: &BenchPlan,
    binary: &Binary,
    cpu: usize,
    number: u32,
    figures: &mut BootFigures,
) -> Result<(), BenchError> {
    figures.first_output_ns.push(binary.first_output()?.0);
    figures.tiny_memory.alone.push(binary.memory_alone(IdleGuest::Tiny)?);
    figures.tiny_memory.tenth.push(binary.memory_shared(IdleGuest::Tiny)?);
    for (vcpus, linux) in plan.vcpus.iter().zip(&mut figures.linux) {
        linux.to_init_ns.push(binary.time_to_init(*vcpus, Pages::AsGranted)?.0);
        if Pages::has_huge_pages() {
            linux.to_init_small_pages_ns.push(binary.time_to_init(*vcpus, Pages::Small)?.0);
        }
        linux.memory.alone.push(binary.memory_alone(IdleGuest::Linux(*vcpus))?);
    }
    for pair in 0..EXIT_PAIRS {
        // On a confined thread: this thread starts processes, which confinement forbids.
        let measure = || exits::measure(cpu, (number + pair).is_multiple_of(2));
        figures.exits.push(confine::run(&Files::for_guests(), measure)??);
    }
    Ok(())
}
