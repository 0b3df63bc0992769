//! What the VMM itself costs: time to the guest's first output, time to a Linux
//! guest's init, memory beside the guest's own, a port exit.
//!
//! A round measures each once (exits three times); rounds repeat, so that what changes slowly on the
//! host falls on all figures alike. One round before the first is thrown away: it
//! finds files that are not in memory yet.
//!
//! Memory is looked at while a guest waits, in two situations: of a VMM that is the only process of
//! its program, where each of its pages is its own, and of the last of ten, which share the program's
//! pages. Both run a copy of the program's file, because this process maps the file itself.

mod children;
pub mod exits;
mod quantity;
mod smaps;

pub use children::{Binary, Pages, Waiting};
pub use exits::ExitPair;
pub use quantity::{Guest, Quantity};
pub use smaps::Outside;

use std::{
    env, io,
    path::PathBuf,
    process::{self, ExitStatus},
};

use serde::Serialize;
use thiserror::Error;

use crate::{
    guest::payload::SharedError,
    kvm::{KvmError, signal},
    units::{ByteSize, UnitError, VcpuCount},
    vm::VmError,
};

/// Memory of the Linux guests.
pub const GUEST_MEMORY: ByteSize = ByteSize::mib(512);

/// VMMs that run side by side for the share of the last.
pub const CROWD: usize = 10;

/// Memory of each Linux guest among those: the VMM's own does not depend on it, and all must fit.
pub const CROWD_GUEST_MEMORY: ByteSize = ByteSize::mib(128);

/// Pairs of loops in a round: the difference is small, and each pair is short.
const EXIT_PAIRS: u32 = 3;

/// Why there is no figure.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Our own binary cannot be found.
    #[error("cannot find this program's own file: {0}")]
    OwnBinary(#[source] io::Error),
    /// There is no copy of it.
    #[error("cannot make {0}, a copy of this program: {1}")]
    Copy(String, #[source] io::Error),
    /// A child cannot be started.
    #[error("cannot run this program: {0}")]
    Start(#[source] io::Error),
    /// A child failed.
    #[error("a measured run failed ({status}): {said}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// Its stderr.
        said: String,
    },
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(String, #[source] io::Error),
    /// Huge pages cannot be turned off for a child.
    #[error("cannot turn huge pages off for a measured run: {0}")]
    HugePages(#[source] rustix::io::Errno),
    /// The guest's init did not announce itself.
    #[error("the guest did not say that its init runs; boot it with our own initrd")]
    NoInit,
    /// The guest's memory was not found among the mappings.
    #[error("found {found} of guest memory in the VMM's mappings instead of {expected}")]
    GuestMemory {
        /// What was found.
        found: ByteSize,
        /// What the guest has.
        expected: ByteSize,
    },
    /// The payload that counts exits did not count.
    #[error("the guest made no exits")]
    NoExits,
    /// No CPU to measure on.
    #[error(transparent)]
    Cpu(#[from] UnitError),
    /// A machine.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// KVM.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The payload's shared block.
    #[error(transparent)]
    Shared(#[from] SharedError),
}

/// What to measure.
#[derive(Debug)]
pub struct BenchPlan {
    /// Rounds that count.
    pub runs: u32,
    /// The Linux guests' kernel; None leaves them out.
    pub kernel: Option<PathBuf>,
    /// vCPUs of the Linux guests.
    pub vcpus: Vec<VcpuCount>,
}

/// Every sample, in the order of the rounds.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// Nanoseconds from start to the tiny guest's first output.
    pub first_output_ns: Vec<u64>,
    /// What the tiny guest's VMM held beside its memory while the guest halted.
    pub tiny_memory: MemoryFigures,
    /// The Linux guests.
    pub linux: Vec<LinuxFigures>,
    /// The port exits.
    pub exits: Vec<ExitPair>,
}

/// The samples of one size of Linux guest.
#[derive(Debug, Serialize)]
pub struct LinuxFigures {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Nanoseconds from start to its init.
    pub to_init_ns: Vec<u64>,
    /// The same with small pages alone; empty where the host grants no others.
    pub to_init_small_pages_ns: Vec<u64>,
    /// What its VMM held beside its memory while it was idle.
    pub memory: MemoryFigures,
}

/// What the VMMs of one kind of guest held beside its memory.
#[derive(Debug, Default, Serialize)]
pub struct MemoryFigures {
    /// One that was the only process of its program.
    pub alone: Vec<Outside>,
    /// The last of [`CROWD`].
    pub tenth: Vec<Outside>,
}

/// Measures; `round` is told the number of each round that counts, from 1.
pub fn run(plan: &BenchPlan, mut round: impl FnMut(u32)) -> Result<Figures, BenchError> {
    let program = env::current_exe().map_err(BenchError::OwnBinary)?;
    let scratch = env::temp_dir().join(format!("pvticket-bench-{}", process::id()));
    let kernel = plan.kernel.clone().unwrap_or_default();
    let binary = Binary::new(program, kernel, scratch)?;
    // The last CPU: interrupts go to the first ones.
    let cpu = signal::allowed_cpus().pop().unwrap_or(0);

    one_round(plan, &binary, cpu, 0, &mut plan.empty())?;
    let mut figures = plan.empty();
    for number in 1..=plan.runs {
        round(number);
        one_round(plan, &binary, cpu, number, &mut figures)?;
    }
    // Once: ten boots, and what ten processes share does not vary.
    if let Some((vcpus, linux)) = plan.vcpus.iter().zip(&mut figures.linux).next() {
        linux.memory.tenth.push(binary.last_of_many(Waiting::Linux(*vcpus))?);
    }
    Ok(figures)
}

impl BenchPlan {
    fn empty(&self) -> Figures {
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
        Figures { linux, ..Figures::default() }
    }
}

fn one_round(
    plan: &BenchPlan,
    binary: &Binary,
    cpu: usize,
    number: u32,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    figures.first_output_ns.push(binary.first_output()?.0);
    figures.tiny_memory.alone.push(binary.alone(Waiting::Tiny)?);
    figures.tiny_memory.tenth.push(binary.last_of_many(Waiting::Tiny)?);
    for (vcpus, linux) in plan.vcpus.iter().zip(&mut figures.linux) {
        linux.to_init_ns.push(binary.to_init(*vcpus, Pages::AsGranted)?.0);
        if Pages::are_huge_ones_granted() {
            linux.to_init_small_pages_ns.push(binary.to_init(*vcpus, Pages::Small)?.0);
        }
        linux.memory.alone.push(binary.alone(Waiting::Linux(*vcpus))?);
    }
    for pair in 0..EXIT_PAIRS {
        figures.exits.push(exits::measure(cpu, (number + pair).is_multiple_of(2))?);
    }
    Ok(())
}
