//! Definition of each axis: its key, how its value is read, its default, its column, the order of points.

use std::{cmp::Ordering, time::Duration};

use super::entry::{Defaults, Entry, Numbers, OFF, or_none, or_off};
use crate::{
    plan::Seconds,
    point::{GuestKind, HostKind, Point},
    spec::{Combination, MAX_VMS, Setting, SpecError, defaults},
    store::export::columns::{count, number, text},
};
use base::handoff::HandoffSpec;
use sched::policy::{DEFAULT_SLICE, POLICIES};

/// Maximum default of slots: on more CPUs, high ratios would need more vCPUs than a VM can have.
const MAX_SLOTS: usize = 16;

/// Compares two points by their values, or by a key derived from the points.
macro_rules! order {
    ($field:ident, $a:ident, $b:ident) => {
        $a.$field.cmp(&$b.$field)
    };
    ($field:ident, $a:ident, $b:ident, $key:expr) => {{
        let key: fn(&Point) -> _ = $key;
        key($a).cmp(&key($b))
    }};
}

/// Defines [`Axis`] and its table. An axis has the field of [`Point`] with its value; after `by`, the sort
/// key if its values have no order; an expression that reads the value from the values of a spec, the spec's
/// [`Setting`] and the fields that come before it in [`KEYS`]; and an [`Entry`].
macro_rules! axes {
    ($(
        $(#[$doc:meta])*
        $axis:ident($field:ident $(by $order:expr)?) =
            |$from:pat_param, $setting:pat_param, $point:pat_param| $value:expr;
        $entry:expr;
    )*) => {
        /// A field of a point that a spec can give several values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Axis {
            $($(#[$doc])* $axis,)*
        }

        impl Axis {
            /// All axes in the order in which a point's name and its columns list them.
            pub const ALL: [Self; [$(stringify!($axis)),*].len()] = [$(Self::$axis),*];

            /// Returns its table entry.
            pub(super) const fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$axis => const { &$entry },)*
                }
            }

            /// Sets the field of a point from the values of a combination.
            pub(super) fn read(
                self,
                from: &Combination<'_>,
                setting: &Setting<'_>,
                point: &mut Point,
            ) -> Result<(), SpecError> {
                match self {
                    $(Self::$axis => {
                        let ($from, $setting, $point) = (from, setting, &*point);
                        point.$field = $value;
                    })*
                }
                Ok(())
            }

            /// Whether both points have the same value on this axis. Does not format the values, because
            /// studies compare all pairs of points.
            pub(super) fn is_same(self, a: &Point, b: &Point) -> bool {
                match self {
                    $(Self::$axis => a.$field == b.$field,)*
                }
            }

            /// Orders points whose values no spec lists, from plain to special.
            pub(crate) fn order(self, a: &Point, b: &Point) -> Ordering {
                match self {
                    $(Self::$axis => order!($field, a, b $(, $order)?),)*
                }
            }
        }
    };
}

axes! {
    /// A label that distinguishes otherwise identical points.
    Label(label) = |from, _, _| from.value("labels").text.clone(); Entry {
        key: Some("labels"),
        name: "label",
        text: |point| point.label.clone(),
        columns: &[text("label", |row| Some(row.cell.point.label.clone()))],
        ..Entry::PLAIN
    };
    /// Payload, Linux or simulated.
    Guest(guest) = |from, _, _| from.parse("guests")?; Entry {
        key: Some("guests"),
        name: "guest",
        default: Defaults::Words(&["payload"]),
        text: |point| point.guest.name().to_owned(),
        columns: &[text("guest", |row| Some(row.cell.point.guest.name().into()))],
        ..Entry::PLAIN
    };
    /// Linux version of the guest.
    GuestKernel(guest_kernel) = |from, _, point| from.guest_kernel(point)?; Entry {
        key: Some("guest-kernels"),
        name: "guest kernel",
        default: Defaults::Computed(|setting| setting.guest_kernel.to_string()),
        has_baseline: true,
        text: |point| point.guest_kernel.to_string(),
        columns: &[text("guest_kernel", |row| {
            // Points with a kernel file named by the user have no version.
            let kernel = row.cell.point.guest_kernel;
            (!kernel.is_unnamed()).then(|| kernel.to_string())
        })],
        ..Entry::PLAIN
    };
    /// The simulated machine.
    Machine(machine) = |from, _, _| from.value("machines").text.clone(); Entry {
        key: Some("machines"),
        name: "simulated machine",
        text: |point| point.machine.clone(),
        columns: &[text("machine", |row| {
            Some(row.cell.point.machine.clone()).filter(|name| !name.is_empty())
        })],
        ..Entry::PLAIN
    };
    /// The host, direct or emulated. Chosen once all points are known.
    Host(host) = |_, _, _| HostKind::Direct; Entry {
        key: None,
        name: "place",
        text: |point| {
            let name = match point.host {
                HostKind::Direct => "this host",
                HostKind::Emulated => "emulated host",
            };
            name.to_owned()
        },
        columns: &[text("host", |row| Some(row.cell.point.host.name().into()))],
        ..Entry::PLAIN
    };
    /// The guest's workload.
    Workload(workload) = |from, _, _| from.value("workloads").text.clone(); Entry {
        key: Some("workloads"),
        name: "workload",
        default: Defaults::Words(&["lock"]),
        text: |point| point.workload.clone(),
        columns: &[text("workload", |row| Some(row.cell.point.workload.clone()))],
        ..Entry::PLAIN
    };
    /// System of the lock library.
    Lock(lock) = |from, _, _| from.parse("locks")?; Entry {
        key: Some("locks"),
        name: "lock",
        default: Defaults::Words(&["ticket", "pv-ticket"]),
        text: |point| point.lock.name().to_owned(),
        columns: &[text("lock", |row| Some(row.cell.point.lock.to_string()))],
        ..Entry::PLAIN
    };
    /// The PV backend.
    Backend(backend) = |from, _, point| from.backend(point)?; Entry {
        key: Some("backends"),
        name: "backend",
        default: Defaults::Words(&["vmm"]),
        has_baseline: true,
        text: |point| point.backend.name().to_owned(),
        columns: &[text("backend", |row| Some(row.cell.point.backend.to_string()))],
        ..Entry::PLAIN
    };
    /// Handoff options of PV locks.
    Handoff(handoff by |point| (point.handoff != HandoffSpec::NONE, point.handoff.to_string())) =
        |from, _, point| from.handoff(point)?; Entry {
        key: Some("handoffs"),
        name: "handoff",
        default: Defaults::NONE,
        text: |point| point.handoff.to_string(),
        columns: &[text("handoff", |row| Some(row.cell.point.handoff.to_string()))],
        ..Entry::PLAIN
    };
    /// The scheduling policy.
    Policy(policy by |point| {
        let place = POLICIES.iter().position(|policy| policy.name == point.policy.name());
        (place, point.policy.to_string())
    }) = |from, _, point| from.policy(point.guest)?; Entry {
        key: Some("policies"),
        name: "policy",
        default: Defaults::Words(&["host"]),
        has_baseline: true,
        has_commas: true,
        text: |point| point.policy.to_string(),
        columns: &[text("policy", |row| Some(row.cell.point.policy.to_string()))],
        ..Entry::PLAIN
    };
    /// Driver of the schedule.
    Driver(driver) = |from, _, _| from.driver()?; Entry {
        key: Some("drivers"),
        name: "driver",
        default: Defaults::Words(&["user"]),
        has_baseline: true,
        text: |point| point.driver.to_string(),
        columns: &[text("driver", |row| Some(row.cell.point.driver.to_string()))],
        ..Entry::PLAIN
    };
    /// The injected faults.
    Fault(fault by |point| point.fault.map(|fault| fault.to_string())) =
        |from, _, _| from.unless_none("faults")?; Entry {
        key: Some("faults"),
        name: "fault",
        default: Defaults::NONE,
        has_baseline: true,
        has_commas: true,
        text: |point| or_none(point.fault.as_ref()),
        columns: &[text("fault", |row| row.cell.point.fault.map(|fault| fault.to_string()))],
        ..Entry::PLAIN
    };
    /// Pause-loop exits of the simulated host.
    Ple(ple) = |from, _, _| from.unless("ple", OFF)?; Entry {
        key: Some("ple"),
        name: "pause-loop exits",
        default: Defaults::OFF,
        text: |point| or_off(point.ple),
        columns: &[text("ple", |row| row.cell.point.ple.map(|ple| ple.to_string()))],
        ..Entry::PLAIN
    };
    /// Halt polling of the simulated host.
    HaltPoll(halt_poll) = |from, _, _| from.unless("halt-poll", OFF)?; Entry {
        key: Some("halt-poll"),
        name: "halt polling",
        default: Defaults::OFF,
        text: |point| or_off(point.halt_poll),
        columns: &[text("halt_poll", |row| row.cell.point.halt_poll.map(|max| max.to_string()))],
        ..Entry::PLAIN
    };
    /// Other threads of the simulated host.
    Noise(noise) = |from, _, _| from.unless("noise", OFF)?; Entry {
        key: Some("noise"),
        name: "background noise",
        default: Defaults::OFF,
        text: |point| or_off(point.noise),
        columns: &[text("noise", |row| row.cell.point.noise.map(|times| times.to_string()))],
        ..Entry::PLAIN
    };
    /// Control groups of the vCPUs' threads.
    Cgroups(cgroups by |point| point.cgroups.as_ref().map(ToString::to_string)) =
        |from, _, _| from.unless_none("cgroups")?; Entry {
        key: Some("cgroups"),
        name: "cgroups",
        default: Defaults::NONE,
        has_baseline: true,
        has_commas: true,
        text: |point| or_none(point.cgroups.as_ref()),
        columns: &[text("cgroups", |row| row.cell.point.cgroups.as_ref().map(ToString::to_string))],
        ..Entry::PLAIN
    };
    /// vCPUs per VM.
    Vcpus(vcpus) = |from, setting, point| from.vcpus(point.slots, setting)?; Entry {
        key: Some("vcpus"),
        name: "vCPUs",
        default: Defaults::Words(&["1x", "1.5x", "2x", "4x"]),
        text: |point| point.vcpus.to_string(),
        numbers: Numbers::Counts(|point| point.vcpus.get().into()),
        columns: &[count("vcpus", |row| Some(row.cell.point.vcpus.get().into()))],
        ..Entry::PLAIN
    };
    /// Number of VMs.
    Vms(vms) = |from, _, _| from.number("vms", 1..=MAX_VMS)?; Entry {
        key: Some("vms"),
        name: "VMs",
        default: Defaults::Words(&["1"]),
        text: |point| point.vms.to_string(),
        numbers: Numbers::Counts(|point| point.vms.into()),
        columns: &[count("vms", |row| Some(row.cell.point.vms.into()))],
        ..Entry::PLAIN
    };
    /// VMs of other sizes.
    OtherVms(other_vms) = |from, _, _| from.unless_none("other-vms")?; Entry {
        key: Some("other-vms"),
        name: "other VMs",
        default: Defaults::NONE,
        text: |point| or_none(point.other_vms.as_ref()),
        columns: &[text("other_vms", |row| {
            row.cell.point.other_vms.as_ref().map(ToString::to_string)
        })],
        ..Entry::PLAIN
    };
    /// Number of slots.
    Slots(slots) = |from, setting, _| from.slots(setting)?; Entry {
        key: Some("slots"),
        name: "slots",
        default: Defaults::Computed(|setting| setting.cpus.cpus().len().min(MAX_SLOTS).to_string()),
        text: |point| point.slots.to_string(),
        numbers: Numbers::Counts(|point| point.slots.into()),
        columns: &[
            count("slots", |row| Some(row.cell.point.slots.into())),
            number("overcommit", |row| Some(row.cell.point.overcommit())),
        ],
        ..Entry::PLAIN
    };
    /// The time slice.
    Slice(slice) = |from, _, _| from.parse("slice")?; Entry {
        key: Some("slice"),
        name: "slice",
        title: Some("time slice"),
        default: Defaults::Computed(|_| DEFAULT_SLICE.to_string()),
        has_baseline: true,
        text: |point| point.slice.to_string(),
        numbers: Numbers::Nanos(|point| point.slice.0 as f64),
        columns: &[count("slice_ns", |row| Some(row.cell.point.slice.0))],
        ..Entry::PLAIN
    };
    /// Spin iterations before a waiter halts.
    SpinThreshold(spin_threshold) = |from, _, point| {
        let default = match point.guest {
            GuestKind::Payload | GuestKind::Sim => defaults::PAYLOAD_SPINS,
            GuestKind::Linux => defaults::BY_HOST,
        };
        if from.is_written("spin-threshold") {
            from.number("spin-threshold", 0..=u32::MAX)?
        } else {
            default
        }
    }; Entry {
        key: Some("spin-threshold"),
        name: "spin threshold",
        title: Some("spin iterations before a waiter halts"),
        has_baseline: true,
        text: |point| point.spin_threshold.to_string(),
        numbers: Numbers::Counts(|point| point.spin_threshold.into()),
        columns: &[count("spin_threshold", |row| Some(row.cell.point.spin_threshold.into()))],
        ..Entry::PLAIN
    };
    /// Number of spinlocks.
    LockCount(lock_count) = |from, _, point| from.lock_count(point)?; Entry {
        key: Some("lock-count"),
        name: "locks in use",
        default: Defaults::Words(&["1"]),
        text: |point| point.lock_count.to_string(),
        numbers: Numbers::Counts(|point| point.lock_count.into()),
        columns: &[count("lock_count", |row| Some(row.cell.point.lock_count.into()))],
        ..Entry::PLAIN
    };
    /// Work inside the critical section.
    Critical(critical) = |from, _, _| from.number("critical", 0..=u32::MAX)?; Entry {
        key: Some("critical"),
        name: "critical section",
        title: Some("increments in a critical section"),
        default: Defaults::Computed(|_| defaults::CRITICAL.to_string()),
        text: |point| point.critical.to_string(),
        numbers: Numbers::Counts(|point| point.critical.into()),
        columns: &[count("critical", |row| Some(row.cell.point.critical.into()))],
        ..Entry::PLAIN
    };
    /// Work between two operations.
    Think(think) = |from, _, _| from.number("think", 0..=u32::MAX)?; Entry {
        key: Some("think"),
        name: "think time",
        title: Some("increments between two critical sections"),
        default: Defaults::Computed(|_| defaults::THINK.to_string()),
        text: |point| point.think.to_string(),
        numbers: Numbers::Counts(|point| point.think.into()),
        columns: &[count("think", |row| Some(row.cell.point.think.into()))],
        ..Entry::PLAIN
    };
    /// Length of the window.
    Seconds(duration) = |from, _, point| {
        let default = match point.guest {
            GuestKind::Payload => 0.5,
            GuestKind::Linux => 1.0,
            GuestKind::Sim => defaults::SIM_SECONDS,
        };
        let requested = if from.is_written("seconds") {
            from.parse::<Seconds>("seconds")?.0
        } else {
            Duration::from_secs_f64(default)
        };
        point.guest_workload().map_or(requested, |workload| workload.window(requested))
    }; Entry {
        key: Some("seconds"),
        name: "seconds",
        title: Some("seconds measured"),
        text: |point| point.duration.as_secs_f64().to_string(),
        numbers: Numbers::Counts(|point| point.duration.as_secs_f64()),
        // The column "seconds" is the measured length of the window.
        columns: &[number("duration", |row| Some(row.cell.point.duration.as_secs_f64()))],
        ..Entry::PLAIN
    };
}

/// Keys of a spec's matrix, from the slowest to the fastest varying. An axis that depends on the value of
/// another axis is read after it.
pub const KEYS: [&str; 26] = [
    "guests",
    "guest-kernels",
    "machines",
    "workloads",
    "slots",
    "vms",
    "other-vms",
    "policies",
    "drivers",
    "slice",
    "faults",
    "ple",
    "halt-poll",
    "noise",
    "cgroups",
    "lock-count",
    "critical",
    "think",
    "spin-threshold",
    "seconds",
    "vcpus",
    SEEDS,
    "labels",
    "locks",
    "backends",
    "handoffs",
];

/// Key of the seeds, which are not an axis: points that differ only in the seed are repetitions of one point.
pub(crate) const SEEDS: &str = "seeds";
