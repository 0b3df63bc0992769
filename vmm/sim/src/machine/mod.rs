//! Machines: how far apart their CPUs are, and what things cost on them.

mod file;
mod keys;
mod shipped;
mod write;

pub use keys::{KeyError, KeyFault};
pub use shipped::SHIPPED;

use crate::host_model::Noise;
use crate::lines::STEP;
use crate::time::Picos;

/// The most CPUs of a machine.
pub const MOST_CPUS: usize = 1024;

/// The origin of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Published.
    Paper,
    /// Measured on the machine itself.
    Measured,
    /// Neither: an estimate, whose effect should be tried out.
    Assumed,
}

/// A cost as its file states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stated {
    /// The key, with the level it belongs to: `costs.pause`, `socket.load-shared`.
    pub key: String,
    /// The cost.
    pub cost: Picos,
    /// Origin of the cost.
    pub source: Source,
    /// The name of the publication or a remark; may be empty.
    pub note: String,
}

/// What it costs to get a cache line from a given distance, from the request to the instruction's
/// end. The line is busy all that time, and other requests for it wait.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LineCosts {
    /// A load of a line that another cache has modified.
    pub load_modified: Picos,
    /// A load of a line that other caches share.
    pub load_shared: Picos,
    /// A store to a line that another cache has modified, or has alone.
    pub store_modified: Picos,
    /// A store to a line that other caches share, the farthest of them at this distance.
    pub store_shared: Picos,
}

/// A distance between CPUs. CPUs are numbered so that those of a group follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// The level's name: `core`, `socket`, ...
    pub name: String,
    /// Number of CPUs in a group: CPUs of one group, but of no smaller one, are this far apart.
    pub cpus: usize,
    /// The costs at this distance.
    pub lines: LineCosts,
}

/// Costs that do not depend on a distance.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// A load or store that hits the CPU's own cache.
    pub hit: Picos,
    /// An atomic read-modify-write, in addition to the access.
    pub atomic: Picos,
    /// The pause of a spin loop and the rest of the loop. Not zero.
    pub pause: Picos,
    /// A line that no cache has.
    pub memory: Picos,
    /// Each cache but the first that a store invalidates, in addition to the store.
    pub invalidate: Picos,
    /// One increment of the payload's work.
    pub increment: Picos,
    /// A hypercall or the timer interrupt, from the guest into the VMM and back.
    pub exit: Picos,
    /// From one vCPU's exit to another vCPU's entry on the same CPU, without the exit.
    pub switch: Picos,
    /// From a decision to a vCPU's entry on a CPU that was idle.
    pub wakeup: Picos,
}

/// Where a read-modify-write is done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// In the CPU's own cache, which needs the only copy of the line and has it afterwards, as on x86.
    #[default]
    Near,
    /// At the line's home, in a cache that all CPUs share; no CPU has a copy afterwards. Arm's
    /// architecture leaves the choice to the implementation (AMBA 5 CHI: far atomics).
    Far,
}

/// What a plain store does whose line another CPU has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// The store goes to a buffer, and its CPU goes on.
    #[default]
    Buffered,
    /// The CPU waits for the line.
    Waiting,
}

/// Whom a line's home serves next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Any of those that wait, at random.
    #[default]
    Random,
    /// The one that has waited longest.
    Fifo,
}

/// A machine. Its file format is explained in the guide, `vmm/sim/docs/MACHINES.md`.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// The machine's name, which every figure of it carries.
    pub name: String,
    /// A description, in one line.
    pub about: String,
    /// Cycles per microsecond.
    pub mhz: f64,
    /// Where its read-modify-writes are done.
    pub atomics: Atomics,
    /// Whom the home of a line serves next.
    pub queue: Queue,
    /// Whether its plain stores wait for their lines.
    pub stores: Stores,
    /// Distances, from the smallest to that of all CPUs.
    pub levels: Vec<Level>,
    /// The other costs.
    pub costs: Costs,
    /// How often and how long its host takes a CPU away, if that is known.
    pub noise: Option<Noise>,
    /// All costs, with their origins.
    pub stated: Vec<Stated>,
    /// What its costs say about each other that cannot be, each in a line, as who measured them found. They are
    /// used nevertheless.
    pub doubts: Vec<String>,
}

impl Machine {
    /// The machine that a file describes.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        file::parse(text)
    }

    /// A machine that comes with pvticket; `None` if there is none of this name.
    pub fn shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name)?;
        Self::parse(text).ok()
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.levels.last().map_or(1, |level| level.cpus)
    }

    /// CPUs of a socket: those of the smallest level that is not called `core`.
    pub(crate) fn per_socket(&self) -> usize {
        let is_socket = |level: &&Level| level.name != "core";
        self.levels.iter().find(is_socket).map_or(1, |level| level.cpus)
    }

    /// What a line took to and fro between two of its CPUs, each way, when it was measured, if its file says so: the
    /// place where its CPUs were. Nothing simulated takes this time.
    pub fn hop(&self) -> Option<Picos> {
        self.stated.iter().find(|cost| cost.key == "costs.hop").map(|cost| cost.cost)
    }

    /// A machine of `cpus` CPUs at one distance, at which everything but a pause is free. The base
    /// of machines whose laws are known by mathematics.
    pub fn ideal(cpus: usize) -> Self {
        let level = Level { name: "machine".into(), cpus, lines: LineCosts::default() };
        let costs = Costs { pause: Picos(1_000), ..Costs::default() };
        Self {
            name: "ideal".into(),
            about: "everything but a pause is free".into(),
            mhz: 1_000.0,
            atomics: Atomics::Near,
            queue: Queue::Random,
            stores: Stores::Buffered,
            levels: vec![level],
            costs,
            noise: None,
            stated: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// A machine of `cpus` CPUs under a law without caches: all that costs anything costs a step. It has
    /// two sockets, or three if their number is odd, for locks that go by that.
    pub(crate) fn of_steps(cpus: usize) -> Self {
        let costs = Costs {
            pause: STEP,
            increment: STEP,
            exit: STEP,
            switch: STEP,
            wakeup: STEP,
            ..Costs::default()
        };
        let (name, about) = ("steps".into(), "an access is a step".into());
        let mut machine = Self { name, about, costs, ..Self::ideal(cpus) };
        let socket =
            Level { name: "socket".into(), cpus: (cpus / 2).max(1), ..machine.levels[0].clone() };
        machine.levels.insert(0, socket);
        machine
    }

    /// The share of its costs that are neither published nor measured, as a count of all.
    pub fn assumed(&self) -> (usize, usize) {
        let assumed = self.stated.iter().filter(|cost| cost.source == Source::Assumed);
        (assumed.count(), self.stated.len())
    }
}
