//! Lines of a store. `vmm/specs/README.md` describes them under "The store".

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
    driver::DriverKind,
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
    /// The first line.
    Run(Box<RunLine>),
    /// Written each time the run is started or resumed, before its cells.
    Session(Box<SessionLine>),
    /// Written each time a cell has ended.
    Cell(Box<CellLine>),
}

/// Description of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// Version of the format, [`FORMAT`].
    pub format: u32,
    /// Name of the spec.
    pub name: String,
    /// The question of the experiment; may be empty.
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
    /// Linux version of guests whose spec does not name it; 6.1 if the user named a file, which may be any
    /// version.
    #[serde(with = "text")]
    pub guest_kernel: GuestKernel,
    /// Host CPUs on which the vCPUs run. The jobs share them equally.
    pub cpus: Vec<usize>,
    /// Number of cells that run in parallel.
    pub jobs: u32,
    /// Seed of the order of the cells.
    pub seed: u64,
    /// Number of cells in this store.
    pub cells: u32,
    /// The part of the run in this store; None: the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Start time, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The simulated machines, with the texts of their files at that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineFile>,
}

/// File of a simulated machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFile {
    /// Name in points: the name of a machine included in pvticket, or the path of the file.
    pub name: String,
    /// Origin of the file, which determines how it can be validated.
    pub origin: MachineOrigin,
    /// Number of its costs that are neither published nor measured.
    pub assumed: u32,
    /// Number of its costs.
    pub costs: u32,
    /// Text of the file.
    pub text: String,
    /// Doubts about its costs from their measurement, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Whether its host has background noise.
    pub has_noise: bool,
}

/// Origin of a machine file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineOrigin {
    /// Included in pvticket.
    Shipped,
    /// Measured by `pvticket sim calibrate`.
    Calibrated,
    /// A file of the user.
    File,
}

/// One start or resume of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionLine {
    /// Start time, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The command line.
    pub command: Vec<String>,
    /// The host at that time.
    pub host: HostFacts,
}

/// One cell: one repetition of one point, on fresh VMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellLine {
    /// Number in the run, from 0; the same in each session.
    pub cell: u32,
    /// Index of the repetition of its point, from 0. Cells of one round run close in time.
    pub round: u32,
    /// The point that was run.
    pub point: Point,
    /// Start time, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// Total duration in seconds.
    pub took: f64,
    /// Load of the CPUs during the cell.
    pub load: Load,
    /// Node of its session, for cells of a part. Filled in when the store is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How the cell ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl CellLine {
    /// Whether it has figures or has failed, and need not be run again.
    pub fn is_ended(&self) -> bool {
        self.outcome != Outcome::Aborted
    }
}

/// Load of the host, including the cell's own load.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Load average over the last minute, at the start.
    pub average: Option<f64>,
    /// Non-idle share of the CPUs' time while the cell ran.
    pub busy: Option<f64>,
    /// Share of the CPUs' time stolen by the underlying hypervisor while the cell ran.
    pub steal: Option<f64>,
    /// Nanoseconds of a cache line transfer between the cell's first two CPUs, just before the cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_before: Option<f64>,
    /// The same, just after the cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_after: Option<f64>,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The cell has figures.
    Done {
        /// The measured figures.
        figures: Box<Figures>,
    },
    /// The cell failed, which does not affect other cells.
    Failed {
        /// The error, in one line.
        error: String,
        /// The last events of each vCPU, if the watchdog ended the cell.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        trace: String,
    },
    /// The user aborted the cell; it is run again on resume.
    Aborted,
}

/// The figures of a cell.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Actual length of the window in seconds. With several VMs, each measured by its guest: the length that
    /// makes [`Figures::rate`] the sum of their rates.
    pub seconds: f64,
    /// Operations of each vCPU or worker in the window.
    pub operations: Vec<u64>,
    /// The rate that a program of the user printed, for all VMs, if its expression was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed_rate: Option<f64>,
    /// Contended operations, if the lock counts them.
    pub slow: Option<u64>,
    /// Waits, for any lock of the guest's kernel, that exhausted the spin threshold.
    pub long_waits: Option<u64>,
    /// Locks of any kind taken by the guests' kernels; None without telemetry.
    pub locks_taken: Option<u64>,
    /// Halts counted by the guest.
    pub halts: u64,
    /// Kicks counted by the guest.
    pub kicks: u64,
    /// Violations of mutual exclusion; anything but zero is a bug.
    pub violations: u64,
    /// Tickets served out of order; anything but zero is a bug.
    pub disorder: u64,
    /// Whether `halts` and `kicks` are unknown: the guest's kernel does not count them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halts_uncounted: bool,
    /// Counts of the VMM over the window.
    pub vmm: Counts,
    /// Counts of the host's kernel for each VM, over its window; empty for simulations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostCounts>,
    /// The host around the window; None for simulations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub around: Option<HostWindow>,
    /// Steal time of all vCPUs in the window, counted by the guests' kernels; None if the workload does not
    /// report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_steal_ns: Option<u64>,
    /// The longest operation of a guest's workload, around the window, too; None if the workload does not time them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<u64>,
    /// Figures of the schedule; None under the host's scheduler unless it was observed.
    pub schedule: Option<ScheduleFigures>,
    /// The reason why the host's scheduler was not observed, although it was to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unobserved: Option<String>,
    /// The reason why directed yields were not, although the scheduler was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_yields: Option<String>,
    /// Counts of injected faults.
    pub faults: Option<FaultCounts>,
    /// Counts of a simulated machine and host; None for measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim: Option<SimCounts>,
    /// Counts of the lock system other than its operations.
    pub work: Option<WorkCounts>,
    /// Durations of operations, or of waits for a lock.
    pub latencies: Option<Timings>,
    /// Timed waits still in progress at the end of the window. They count in `latencies` with the length that
    /// they had reached.
    pub open_waits: u64,
    /// Size of its timeline, if traced.
    pub timeline: Option<TimelineCounts>,
}

/// Counts of a simulation in addition to measurable figures.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimCounts {
    /// Pause-loop exits.
    pub pause_exits: u64,
    /// Halts ended by a kick while the vCPU polled.
    pub polled: u64,
    /// Time in which vCPUs had a CPU but another host thread ran on it.
    pub stolen_ns: u64,
    /// Spin iterations.
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
    /// Entries dropped for lack of room.
    pub lost: u64,
}

impl Figures {
    /// Returns the operations of all vCPUs, as a float: a store may have any counts, and their sum must not
    /// overflow.
    pub fn all_operations(&self) -> f64 {
        self.operations.iter().map(|count| *count as f64).sum()
    }

    /// Whether a lock has failed: violations of mutual exclusion, or tickets served out of order.
    pub fn is_broken(&self) -> bool {
        self.violations > 0 || self.disorder > 0
    }

    /// Returns the operations per second of all vCPUs, or the printed rate.
    pub fn rate(&self) -> f64 {
        self.printed_rate.unwrap_or_else(|| self.counted_rate())
    }

    fn counted_rate(&self) -> f64 {
        if self.seconds > 0.0 { self.all_operations() / self.seconds } else { 0.0 }
    }

    /// Adds the report of another VM's guest, which ran at the same time and measured the same window by its
    /// clock. The counts of the VMM and the schedule already include all VMs.
    #[must_use]
    pub fn merge_machine(mut self, other: Self) -> Self {
        let printed = self.printed_rate.zip(other.printed_rate);
        self.printed_rate = printed.map(|(first, second)| first + second);
        let rate = self.counted_rate() + other.counted_rate();
        self.seconds = if rate > 0.0 {
            (self.all_operations() + other.all_operations()) / rate
        } else {
            self.seconds.max(other.seconds)
        };
        self.operations.extend(other.operations);
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        self.long_waits = sum(self.long_waits, other.long_waits);
        self.guest_steal_ns = sum(self.guest_steal_ns, other.guest_steal_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.halts_uncounted |= other.halts_uncounted;
        self.halts = self.halts.saturating_add(other.halts);
        self.kicks = self.kicks.saturating_add(other.kicks);
        self.violations = self.violations.saturating_add(other.violations);
        self
    }
}

/// A schedule's sums since the start of its VMs, as shown in a trace.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinceStart {
    /// Slices, preemptions and their costs.
    pub totals: Totals,
    /// Hits and misses of a policy that injects preemptions.
    pub hits: Option<Hits>,
}

/// Figures of a schedule.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFigures {
    /// Length in seconds of the interval of `totals`, `hits` and `extensions`, in which all VMs were measured.
    pub seconds: f64,
    /// Sums over that interval.
    pub totals: Totals,
    /// Hits and misses of a policy that injects preemptions.
    pub hits: Option<Hits>,
    /// How extensions of slices ended, for a policy that grants them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<ExtensionCounts>,
    /// Times for which extensions were needed: from the end of a slice until its vCPU had released its lock
    /// and left its slot. For an extension that overran its bound, until its end.
    #[serde(default, skip_serializing_if = "Timings::is_empty")]
    pub extension_needed: Timings,
    /// Whether `wasted_spin_ns` of the sums is not measured: by old versions of the driver `bpf`, and of guests
    /// without telemetry, whose lock states are observed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waste_uncounted: bool,
    /// Records that the host's kernel lost since the start of the VMs. The sums lack their preemptions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Sums since the start of the VMs.
    pub since_start: SinceStart,
    /// Differences of a replay from its recording; None for other policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
    /// Times between consecutive events of the schedule.
    #[serde(flatten)]
    pub times: HandoffTimes<Timings>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ScheduleFigures {
    /// Whether lock states were observed, at least of some guests of this driver.
    pub fn is_observed(&self, driver: DriverKind) -> bool {
        self.waste_uncounted && driver == DriverKind::User
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_covers_all_vcpus() {
        let mut figures = Figures { seconds: 0.5, operations: vec![10, 30], ..Figures::default() };
        assert_eq!((figures.all_operations(), figures.rate()), (40.0, 80.0));
        figures.seconds = 0.0;
        assert_eq!(figures.rate(), 0.0);
    }

    /// A VM that is measured slightly longer than another does not lower the rate.
    #[test]
    fn rates_of_machines_add_up() {
        let figures = |seconds, operations| Figures {
            seconds,
            operations: vec![operations],
            ..Figures::default()
        };
        let both = figures(1.0, 100).merge_machine(figures(2.0, 600));
        assert_eq!((both.all_operations(), both.rate()), (700.0, 400.0));
        assert_eq!(figures(1.0, 0).merge_machine(figures(2.0, 0)).seconds, 2.0);
        let printed = |rate| Figures { printed_rate: Some(rate), ..figures(2.0, 1) };
        let both = printed(7.0).merge_machine(printed(5.0));
        assert_eq!((both.rate(), both.seconds), (12.0, 2.0));
        let liar = || Figures { halts: u64::MAX, violations: u64::MAX, ..figures(1.0, u64::MAX) };
        let both = liar().merge_machine(liar());
        assert_eq!((both.halts, both.violations), (u64::MAX, u64::MAX));
    }
}
