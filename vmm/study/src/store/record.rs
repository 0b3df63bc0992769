//! The lines of a store. `vmm/specs/README.md` describes them under "The store".

use serde::{Deserialize, Serialize};

use crate::{
    host_facts::HostFacts,
    host_window::HostWindow,
    point::{HostKernel, Point},
    spec::Part,
    sync_counters::WorkCounts,
    timings::Timings,
};
use base::{
    counters::{Counts, FaultCounts},
    guest_kernel::GuestKernel,
    host_counts::HostCounts,
    text,
};
use sched::{
    accounting::Totals,
    extensions::ExtensionCounts,
    policy::{Divergence, Hits},
    times::HandoffTimes,
};

/// Version of the format of all lines.
pub const FORMAT: u32 = 2;

/// One line of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The first line only.
    Run(Box<RunLine>),
    /// Written each time the run is started or resumed, before its cells.
    Session(Box<SessionLine>),
    /// Written each time a cell has ended.
    Cell(Box<CellLine>),
}

/// Describes the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// Version of the format, [`FORMAT`].
    pub format: u32,
    /// The spec's name.
    pub name: String,
    /// The question that the experiment asks; may be empty.
    pub question: String,
    /// The full text of the spec, so that the run can be resumed and repeated.
    pub spec: String,
    /// The `--only` options, which select a part of the matrix.
    pub only: Vec<String>,
    /// `--host`: `auto`, `direct` or `emulated`.
    pub host: String,
    /// The kernel of the emulated host.
    #[serde(with = "text")]
    pub host_kernel: HostKernel,
    /// The Linux of guests whose spec names none; 6.1 where the user named a file, which may be any.
    #[serde(with = "text")]
    pub guest_kernel: GuestKernel,
    /// Host CPUs that the vCPUs run on. Overcommit ratios refer to one job's share of them.
    pub cpus: Vec<usize>,
    /// Cells that are run side by side.
    pub jobs: u32,
    /// Seed of the order of the cells.
    pub seed: u64,
    /// Number of cells, of this part.
    pub cells: u32,
    /// The part of the run that this store has; None: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// When it began, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The simulated machines, with their files' texts at that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineFile>,
}

/// The file of a simulated machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFile {
    /// What points call it: the name of one that comes with pvticket, or the file's path.
    pub name: String,
    /// Where it comes from, which says what its validation can be.
    pub origin: MachineOrigin,
    /// How many of its costs are neither published nor measured.
    pub assumed: u32,
    /// The number of its costs.
    pub costs: u32,
    /// The file's text.
    pub text: String,
    /// Doubts about its costs from their measurement, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Does its host take CPUs away?
    pub has_noise: bool,
}

/// Where a machine file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineOrigin {
    /// Comes with pvticket.
    Shipped,
    /// `pvticket sim calibrate` measured it.
    Calibrated,
    /// The user's own.
    File,
}

/// One start or resume of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionLine {
    /// Time of the start, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The command line.
    pub command: Vec<String>,
    /// The host at that time.
    pub host: HostFacts,
}

/// One cell: one repetition of one point, on fresh machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellLine {
    /// Number in the run, from 0; the same in each session.
    pub cell: u32,
    /// Which repetition of its point, from 0. Cells of one round run close in time.
    pub round: u32,
    /// The point that was run.
    pub point: Point,
    /// When it began, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// How long it took in total, in seconds.
    pub took: f64,
    /// How busy the CPUs were meanwhile.
    pub load: Load,
    /// The node of its session, for cells of a part. Filled in when the store is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl CellLine {
    /// Has figures or has failed, and need not be run again.
    pub fn is_ended(&self) -> bool {
        self.outcome != Outcome::Aborted
    }
}

/// How busy the host was, with the cell's own load included.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Load average over the last minute, at the start.
    pub average: Option<f64>,
    /// Share of the CPUs' time that was not idle while the cell ran.
    pub busy: Option<f64>,
    /// Share of the CPUs' time that was stolen by the hypervisor above while the cell ran.
    pub steal: Option<f64>,
    /// Nanoseconds that a cache line took between the first two of its CPUs just before the cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_before: Option<f64>,
    /// The same, just after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_after: Option<f64>,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// With figures.
    Done {
        /// What was measured.
        figures: Box<Figures>,
    },
    /// By a failure, which affects this cell only.
    Failed {
        /// The error, in one line.
        error: String,
        /// The last events of each vCPU, if the watchdog ended the cell.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        trace: String,
    },
    /// Aborted by the user; the cell is run again on resume.
    Aborted,
}

/// The figures of a cell.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The real length of the window, in seconds. With several machines, each measured by its guest:
    /// the length that makes [`Figures::rate`] the sum of their rates.
    pub seconds: f64,
    /// Operations by each vCPU in the window.
    pub operations: Vec<u64>,
    /// Contended operations, if the lock counts them.
    pub slow: Option<u64>,
    /// Waits for any lock of the guest's kernel that used up the spin threshold.
    pub long_waits: Option<u64>,
    /// Locks of any kind taken by the guests' kernels; None without telemetry.
    pub locks_taken: Option<u64>,
    /// Halts that the guest counted.
    pub halts: u64,
    /// Kicks that the guest counted.
    pub kicks: u64,
    /// Violations of mutual exclusion; anything but zero is a bug.
    pub violations: u64,
    /// Tickets served out of order; anything but zero is a bug.
    pub disorder: u64,
    /// The VMM's own counts over the window.
    pub vmm: Counts,
    /// What the host's kernel counted of each machine, over its window; empty for simulations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostCounts>,
    /// The host around the window; None for simulations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub around: Option<HostWindow>,
    /// Steal time in the window as the guests' kernels count it, of all vCPUs; None where the workload
    /// does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_steal_ns: Option<u64>,
    /// Figures of our schedule; None under the host's scheduler.
    pub schedule: Option<ScheduleFigures>,
    /// Counts of injected faults.
    pub faults: Option<FaultCounts>,
    /// What a simulation counted of its machine and its host; None for what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim: Option<SimCounts>,
    /// Other counts of the lock system than its operations.
    pub work: Option<WorkCounts>,
    /// Durations of operations, or of waits for a lock.
    pub latencies: Option<Timings>,
    /// Timed waits that had not ended at the end of the window. They count in `latencies` with the
    /// length that they had reached.
    pub open_waits: u64,
    /// What its timeline recorded, if it was traced.
    pub timeline: Option<TimelineCounts>,
}

/// What a simulation counts beside what can be measured.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimCounts {
    /// Exits of pause loops.
    pub pause_exits: u64,
    /// Halts that a kick ended while the vCPU polled.
    pub polled: u64,
    /// Time in which vCPUs had a CPU and another thread of the host ran on it.
    pub stolen_ns: u64,
    /// Looks of spin loops.
    pub looks: u64,
    /// Transfers of cache lines.
    pub transfers: u64,
    /// Events of the simulator.
    pub events: u64,
}

/// The size of a timeline.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimelineCounts {
    /// Entries per second.
    pub entries: f64,
    /// Entries that it had no room for.
    pub lost: u64,
}

impl Figures {
    /// Operations by all vCPUs. A float, since a store's counts may be anything and their sum must not
    /// overflow.
    pub fn all_operations(&self) -> f64 {
        self.operations.iter().map(|count| *count as f64).sum()
    }

    /// Has a lock failed: violations of mutual exclusion, or tickets served out of order?
    pub fn is_broken(&self) -> bool {
        self.violations > 0 || self.disorder > 0
    }

    /// Operations per second by all vCPUs.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.all_operations() / self.seconds } else { 0.0 }
    }

    /// Adds what another machine's guest reported, which ran beside this one and measured the same
    /// window by its own clock. What the VMM and the schedule counted is of all machines already.
    #[must_use]
    pub fn beside(mut self, other: Self) -> Self {
        let rate = self.rate() + other.rate();
        self.seconds = if rate > 0.0 {
            (self.all_operations() + other.all_operations()) / rate
        } else {
            self.seconds.max(other.seconds)
        };
        self.operations.extend(other.operations);
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        self.long_waits = both(self.long_waits, other.long_waits);
        self.guest_steal_ns = both(self.guest_steal_ns, other.guest_steal_ns);
        self.halts = self.halts.saturating_add(other.halts);
        self.kicks = self.kicks.saturating_add(other.kicks);
        self.violations = self.violations.saturating_add(other.violations);
        self
    }
}

/// A schedule's sums since the start of its machines, as a trace shows them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinceStart {
    /// Turns, preemptions and their costs.
    pub totals: Totals,
    /// Hits and misses of a policy that injects preemptions.
    pub hits: Option<Hits>,
}

/// The figures of a schedule.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFigures {
    /// Length of the interval that the fields below cover: the time in which all machines were
    /// measured.
    pub seconds: f64,
    /// Sums over that time.
    pub totals: Totals,
    /// Hits and misses of a policy that injects preemptions.
    pub hits: Option<Hits>,
    /// How extensions of slices ended, for a policy that grants them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<ExtensionCounts>,
    /// How long they were needed: from the end of a slice until its vCPU had released its lock and left. Of one that
    /// overran its bound, until its end.
    #[serde(default, skip_serializing_if = "Timings::is_empty")]
    pub extension_needed: Timings,
    /// `wasted_spin_ns` of the sums is not measured by this driver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waste_uncounted: bool,
    /// Sums since the machines' start.
    pub since_start: SinceStart,
    /// How a replay differs from its recording; None for all other policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
    /// Times from one event of the schedule to the next.
    #[serde(flatten)]
    pub times: HandoffTimes<Timings>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_all_vcpus_over_the_time_measured() {
        let mut figures = Figures { seconds: 0.5, operations: vec![10, 30], ..Figures::default() };
        assert_eq!((figures.all_operations(), figures.rate()), (40.0, 80.0));
        figures.seconds = 0.0;
        assert_eq!(figures.rate(), 0.0);
    }

    /// A machine that is measured slightly longer than the other does not lower the rate.
    #[test]
    fn the_rate_of_two_machines_is_the_sum_of_both() {
        let figures = |seconds, operations| Figures {
            seconds,
            operations: vec![operations],
            ..Figures::default()
        };
        let both = figures(1.0, 100).beside(figures(2.0, 600));
        assert_eq!((both.all_operations(), both.rate()), (700.0, 400.0));
        assert_eq!(figures(1.0, 0).beside(figures(2.0, 0)).seconds, 2.0);
        let liar = || Figures { halts: u64::MAX, violations: u64::MAX, ..figures(1.0, u64::MAX) };
        let both = liar().beside(liar());
        assert_eq!((both.halts, both.violations), (u64::MAX, u64::MAX));
    }
}
