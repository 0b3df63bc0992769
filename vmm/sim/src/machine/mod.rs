//! Machines: the distances between their CPUs and the costs of their operations.

mod changes;
mod file;
mod keys;
mod shipped;
mod write;

pub use changes::ChangeError;
pub use keys::{KeyError, KeyFault};
pub use shipped::SHIPPED;

use crate::host_model::Noise;
use crate::lines::STEP;
use crate::time::Picos;

/// Maximum number of CPUs of a machine.
pub const MAX_CPUS: usize = 1024;

/// The origin of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Published.
    Paper,
    /// Measured on the machine itself.
    Measured,
    /// Estimated. Its effect on results should be checked.
    Assumed,
}

/// A cost as stated in a machine file.
#[derive(Debug, Clone, PartialEq)]
pub struct CostEntry {
    /// The key, with the level it belongs to: `costs.pause`, `socket.load-shared`.
    pub key: String,
    /// The cost.
    pub cost: Picos,
    /// Origin of the cost.
    pub source: Source,
    /// The name of the publication or a remark; may be empty.
    pub note: String,
}

/// Costs at a given distance. All but the last are of getting a cache line, from the request to the end of the
/// instruction. The line is busy during this time, and other requests for it wait.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LineCosts {
    /// A load of a line modified or exclusive in another cache.
    pub load_modified: Picos,
    /// A load of a line that other caches share.
    pub load_shared: Picos,
    /// A store to a line modified or exclusive in another cache.
    pub store_modified: Picos,
    /// A store to a line that other caches share, the farthest of them at this distance.
    pub store_shared: Picos,
    /// The way of an interrupt, in addition to [`Costs::wakeup`]. Files may leave it out: zero.
    pub wakeup: Picos,
}

/// A distance between CPUs. The CPUs of a group have consecutive numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// The level's name: `core`, `socket`, ...
    pub name: String,
    /// Number of CPUs in a group. CPUs in the same group, but in no smaller common group, are this far apart.
    pub cpus: usize,
    /// The costs at this distance.
    pub lines: LineCosts,
}

/// Costs that do not depend on distance.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// A load or store that hits the CPU's own cache.
    pub hit: Picos,
    /// An atomic read-modify-write, in addition to the access.
    pub atomic: Picos,
    /// The pause and the other instructions of a spin loop. Not zero.
    pub pause: Picos,
    /// An access to a line that is in no cache.
    pub memory: Picos,
    /// Each cache that a store invalidates, except the first, in addition to the store.
    pub invalidate: Picos,
    /// One increment of the payload's work.
    pub increment: Picos,
    /// A hypercall or timer interrupt, from the guest into the VMM and back.
    pub exit: Picos,
    /// From a vCPU's exit to another vCPU's entry on the same CPU, without the exit.
    pub switch: Picos,
    /// From a decision to a vCPU's entry on an idle CPU.
    pub wakeup: Picos,
    /// An exit that the host's kernel serves; `None`: as `exit`.
    pub in_kernel: Option<Picos>,
    /// A try to yield to a preempted vCPU, after a pause-loop exit.
    pub yield_to: Picos,
}

impl Costs {
    /// The cost of an exit that the host's kernel serves.
    pub(crate) fn kernel_exit(&self) -> Picos {
        self.in_kernel.unwrap_or(self.exit)
    }
}

/// Where a read-modify-write is executed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// In the CPU's own cache, which needs the only copy of the line and keeps it, as on x86.
    #[default]
    Near,
    /// At the line's home, in a cache shared by all CPUs. No CPU has a copy afterwards. The Arm architecture
    /// leaves the choice to the implementation (AMBA 5 CHI: far atomics).
    Far,
}

/// Behavior of a plain store that misses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// The store enters a buffer, and its CPU continues.
    #[default]
    Buffered,
    /// The CPU waits for the line.
    Waiting,
}

/// Order in which a line's home serves waiting requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Random order.
    #[default]
    Random,
    /// Longest waiting request first.
    Fifo,
}

/// A machine. `vmm/sim/docs/MACHINES.md` documents the file format.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// The machine's name. All figures for the machine include it.
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// Cycles per microsecond.
    pub mhz: f64,
    /// Where read-modify-writes are executed.
    pub atomics: Atomics,
    /// Order in which the home of a line serves requests.
    pub queue: Queue,
    /// Whether plain stores wait for their lines.
    pub stores: Stores,
    /// Distances in ascending order. The last includes all CPUs.
    pub levels: Vec<Level>,
    /// The other costs.
    pub costs: Costs,
    /// Background noise of its host, if known.
    pub noise: Option<Noise>,
    /// All costs with their sources.
    pub cost_entries: Vec<CostEntry>,
    /// Contradictions between its costs, one line each, as found when they were measured. The costs are used
    /// anyway.
    pub doubts: Vec<String>,
}

impl Machine {
    /// Parses a machine file.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        file::parse(text)
    }

    /// A built-in machine; `None` if the name is unknown.
    pub fn shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name)?;
        Self::parse(text).ok()
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.levels.last().map_or(1, |level| level.cpus)
    }

    /// CPUs of a socket, the smallest level not named `core`.
    pub(crate) fn per_socket(&self) -> usize {
        let is_socket = |level: &&Level| level.name != "core";
        self.levels.iter().find(is_socket).map_or(1, |level| level.cpus)
    }

    /// Distributes its first `cpus` CPUs over two sockets, or three if the number is odd.
    pub(crate) fn split(&mut self, cpus: usize) {
        let half = (cpus / 2).max(1);
        self.levels.retain(|level| level.name != "core");
        if let Some(socket) = self.levels.first_mut() {
            socket.cpus = socket.cpus.min(half);
        }
    }

    /// Measured one-way time of a line bouncing between two of its CPUs, if its file states it. It identifies
    /// the placement of the measured CPUs. No simulated operation takes this time.
    pub fn hop(&self) -> Option<Picos> {
        self.cost_entries.iter().find(|cost| cost.key == "costs.hop").map(|cost| cost.cost)
    }

    /// A machine of `cpus` CPUs at one distance where everything except a pause is free. It is the base of
    /// machines with analytically known behavior.
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
            cost_entries: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// A machine of `cpus` CPUs under a law without caches: each nonzero cost is one step. It has two
    /// sockets (one for one CPU, three for other odd numbers), for locks that depend on sockets.
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

    /// The number of assumed costs, and the number of all costs.
    pub fn assumed(&self) -> (usize, usize) {
        let assumed = self.cost_entries.iter().filter(|cost| cost.source == Source::Assumed);
        (assumed.count(), self.cost_entries.len())
    }
}
