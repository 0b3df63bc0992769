//! Definition of each axis: its key, how its value is read, its default, its column, the order of points.

use std::{cmp::Ordering, time::Duration};

use super::entry::{Defaults, Entry, Numbers, OFF, on_or_off, or_none, or_off};
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
        columns: &[text("label", |row| Some(row.cell.point.label.clone()))],
        ..Entry::new("labels", "label", |point| point.label.clone())
    };
    /// Payload, Linux or simulated.
    Guest(guest) = |from, _, _| from.parse("guests")?; Entry {
        default: Defaults::Words(&["payload"]),
        columns: &[text("guest", |row| Some(row.cell.point.guest.name().into()))],
        ..Entry::new("guests", "guest", |point| point.guest.name().to_owned())
    };
    /// Linux version of the guest.
    GuestKernel(guest_kernel) = |from, _, point| from.guest_kernel(point)?; Entry {
        default: Defaults::Computed(|setting| setting.guest_kernel.to_string()),
        has_baseline: true,
        columns: &[text("guest_kernel", |row| {
            // Points with a kernel file named by the user have no version.
            let kernel = row.cell.point.guest_kernel;
            (!kernel.is_unnamed()).then(|| kernel.to_string())
        })],
        ..Entry::new("guest-kernels", "guest kernel", |point| point.guest_kernel.to_string())
    };
    /// The simulated machine.
    Machine(machine) = |from, _, _| from.value("machines").text.clone(); Entry {
        columns: &[text("machine", |row| {
            Some(row.cell.point.machine.clone()).filter(|name| !name.is_empty())
        })],
        ..Entry::new("machines", "simulated machine", |point| point.machine.clone())
    };
    /// The host, direct or emulated. Chosen once all points are known.
    Host(host) = |_, _, _| HostKind::Direct; Entry {
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
    /// The kernel of the emulated host.
    HostKernel(host_kernel) = |from, _, _| from.host_kernel()?; Entry {
        has_baseline: true,
        columns: &[text("host_kernel", |row| row.cell.point.host_kernel.map(|it| it.to_string()))],
        ..Entry::new("host-kernels", "host kernel", |point| {
            point.host_kernel.map_or_else(String::new, |kernel| kernel.to_string())
        })
    };
    /// The guest's workload.
    Workload(workload) = |from, _, _| from.value("workloads").text.clone(); Entry {
        default: Defaults::Words(&["lock"]),
        columns: &[text("workload", |row| Some(row.cell.point.workload.clone()))],
        ..Entry::new("workloads", "workload", Point::workload_name)
    };
    /// The expression for a program's rate.
    Rate(rate by |point| point.rate.as_ref().map(ToString::to_string)) =
        |from, _, point| from.rate(point)?; Entry {
        default: Defaults::NONE,
        has_commas: true,
        columns: &[text("rate_expression", |row| {
            row.cell.point.rate.as_ref().map(ToString::to_string)
        })],
        ..Entry::new("rate", "rate", |point| or_none(point.rate.as_ref()))
    };
    /// System of the lock library.
    Lock(lock) = |from, _, _| from.parse("locks")?; Entry {
        default: Defaults::Words(&["ticket", "pv-ticket"]),
        columns: &[text("lock", |row| Some(row.cell.point.lock.to_string()))],
        ..Entry::new("locks", "lock", |point| point.lock.name().to_owned())
    };
    /// The PV backend.
    Backend(backend) = |from, _, point| from.backend(point)?; Entry {
        default: Defaults::Words(&["vmm"]),
        has_baseline: true,
        columns: &[text("backend", |row| Some(row.cell.point.backend.to_string()))],
        ..Entry::new("backends", "backend", |point| point.backend.name().to_owned())
    };
    /// Handoff options of PV locks.
    Handoff(handoff by |point| (point.handoff != HandoffSpec::NONE, point.handoff.to_string())) =
        |from, _, point| from.handoff(point)?; Entry {
        default: Defaults::NONE,
        columns: &[text("handoff", |row| Some(row.cell.point.handoff.to_string()))],
        ..Entry::new("handoffs", "handoff", |point| point.handoff.to_string())
    };
    /// The scheduling policy.
    Policy(policy by |point| {
        let place = POLICIES.iter().position(|policy| policy.name == point.policy.name());
        (place, point.policy.to_string())
    }) = |from, _, point| from.policy(point.guest)?; Entry {
        default: Defaults::Words(&["host"]),
        has_baseline: true,
        has_commas: true,
        columns: &[text("policy", |row| Some(row.cell.point.policy.to_string()))],
        ..Entry::new("policies", "policy", |point| point.policy.to_string())
    };
    /// Driver of the schedule.
    Driver(driver) = |from, _, _| from.driver()?; Entry {
        default: Defaults::Words(&["user"]),
        has_baseline: true,
        columns: &[text("driver", |row| Some(row.cell.point.driver.to_string()))],
        ..Entry::new("drivers", "driver", |point| point.driver.to_string())
    };
    /// Whether the host's scheduler is observed.
    Observe(observe_off) = |from, _, point| !from.observe(point)?; Entry {
        default: Defaults::Words(&["on"]),
        has_baseline: true,
        columns: &[text("observe", |row| Some(on_or_off(!row.cell.point.observe_off).into()))],
        ..Entry::new("observe", "observe", |point| on_or_off(!point.observe_off).to_owned())
    };
    /// The writer of a Linux guest's steal time.
    StealTime(steal_time) = |from, _, point| from.steal_time(point)?; Entry {
        has_baseline: true,
        columns: &[text("steal_time", |row| Some(row.cell.point.steal_time.to_string()))],
        ..Entry::new("told", "steal time", |point| point.steal_time.to_string())
    };
    /// The injected faults.
    Fault(fault by |point| point.fault.map(|fault| fault.to_string())) =
        |from, _, _| from.unless_none("faults")?; Entry {
        default: Defaults::NONE,
        has_baseline: true,
        has_commas: true,
        columns: &[text("fault", |row| row.cell.point.fault.map(|fault| fault.to_string()))],
        ..Entry::new("faults", "fault", |point| or_none(point.fault.as_ref()))
    };
    /// Pause-loop exits.
    Ple(ple) = |from, _, point| from.ple(point)?; Entry {
        has_baseline: true,
        columns: &[text("ple", |row| row.cell.point.ple.map(|ple| ple.to_string()))],
        ..Entry::new("ple", "PLE", |point| match point.ple {
            None if point.guest != GuestKind::Sim => "KVM's setting".into(),
            ple => or_off(ple),
        })
    };
    /// Halt polling of the simulated host.
    HaltPoll(halt_poll) = |from, _, _| from.unless("halt-poll", OFF)?; Entry {
        default: Defaults::OFF,
        columns: &[text("halt_poll", |row| row.cell.point.halt_poll.map(|max| max.to_string()))],
        ..Entry::new("halt-poll", "halt polling", |point| or_off(point.halt_poll))
    };
    /// Other threads of the simulated host.
    Noise(noise) = |from, _, _| from.unless("noise", OFF)?; Entry {
        default: Defaults::OFF,
        columns: &[text("noise", |row| row.cell.point.noise.map(|times| times.to_string()))],
        ..Entry::new("noise", "background noise", |point| or_off(point.noise))
    };
    /// Control groups of the vCPUs' threads.
    Cgroups(cgroups by |point| point.cgroups.as_ref().map(ToString::to_string)) =
        |from, _, _| from.unless_none("cgroups")?; Entry {
        default: Defaults::NONE,
        has_baseline: true,
        has_commas: true,
        columns: &[text("cgroups", |row| row.cell.point.cgroups.as_ref().map(ToString::to_string))],
        ..Entry::new("cgroups", "cgroups", |point| or_none(point.cgroups.as_ref()))
    };
    /// vCPUs per VM.
    Vcpus(vcpus) = |from, setting, point| from.vcpus(point.slots, setting)?; Entry {
        default: Defaults::Words(&["1x", "1.5x", "2x", "4x"]),
        columns: &[count("vcpus", |row| Some(row.cell.point.vcpus.get().into()))],
        ..Entry::counted("vcpus", "vCPUs", |point| point.vcpus.get().into())
    };
    /// Number of VMs.
    Vms(vms) = |from, _, _| from.number("vms", 1..=MAX_VMS)?; Entry {
        default: Defaults::Words(&["1"]),
        columns: &[count("vms", |row| Some(row.cell.point.vms.into()))],
        ..Entry::counted("vms", "VMs", |point| point.vms.into())
    };
    /// VMs of other sizes.
    OtherVms(other_vms) = |from, _, _| from.unless_none("other-vms")?; Entry {
        default: Defaults::NONE,
        columns: &[text("other_vms", |row| {
            row.cell.point.other_vms.as_ref().map(ToString::to_string)
        })],
        ..Entry::new("other-vms", "other VMs", |point| or_none(point.other_vms.as_ref()))
    };
    /// Number of slots.
    Slots(slots) = |from, setting, _| from.slots(setting)?; Entry {
        default: Defaults::Computed(|setting| setting.cpus.cpus().len().min(MAX_SLOTS).to_string()),
        columns: &[
            count("slots", |row| Some(row.cell.point.slots.into())),
            number("overcommit", |row| Some(row.cell.point.overcommit())),
        ],
        ..Entry::counted("slots", "slots", |point| point.slots.into())
    };
    /// The time slice.
    Slice(slice) = |from, _, _| from.parse("slice")?; Entry {
        title: Some("time slice"),
        default: Defaults::Computed(|_| DEFAULT_SLICE.to_string()),
        has_baseline: true,
        numbers: Numbers::Nanos(|point| point.slice.0 as f64),
        columns: &[count("slice_ns", |row| Some(row.cell.point.slice.0))],
        ..Entry::new("slice", "slice", |point| point.slice.to_string())
    };
    /// Spin iterations before a waiter halts.
    SpinThreshold(spin_threshold) = |from, setting, point| {
        match point.guest {
            _ if from.is_written("spin-threshold") => from.number("spin-threshold", 0..=u32::MAX)?,
            GuestKind::Payload | GuestKind::Sim => defaults::spins((setting.pause)(&point.machine)),
            GuestKind::Linux => defaults::BY_HOST,
        }
    }; Entry {
        title: Some("spin iterations before a waiter halts"),
        has_baseline: true,
        columns: &[count("spin_threshold", |row| Some(row.cell.point.spin_threshold.into()))],
        ..Entry::counted("spin-threshold", "spin threshold", |point| point.spin_threshold.into())
    };
    /// Number of spinlocks.
    LockCount(lock_count) = |from, _, point| from.lock_count(point)?; Entry {
        default: Defaults::Words(&["1"]),
        columns: &[count("lock_count", |row| Some(row.cell.point.lock_count.into()))],
        ..Entry::counted("lock-count", "locks in use", |point| point.lock_count.into())
    };
    /// Work inside the critical section.
    Critical(critical) = |from, _, _| from.number("critical", 0..=u32::MAX)?; Entry {
        title: Some("increments in a critical section"),
        default: Defaults::Computed(|_| defaults::CRITICAL.to_string()),
        columns: &[count("critical", |row| Some(row.cell.point.critical.into()))],
        ..Entry::counted("critical", "critical section", |point| point.critical.into())
    };
    /// Work between two operations.
    Think(think) = |from, _, _| from.number("think", 0..=u32::MAX)?; Entry {
        title: Some("increments between two critical sections"),
        default: Defaults::Computed(|_| defaults::THINK.to_string()),
        columns: &[count("think", |row| Some(row.cell.point.think.into()))],
        ..Entry::counted("think", "think time", |point| point.think.into())
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
        title: Some("seconds measured"),
        // The column "seconds" is the measured length of the window.
        columns: &[number("duration", |row| Some(row.cell.point.duration.as_secs_f64()))],
        ..Entry::counted("seconds", "seconds", |point| point.duration.as_secs_f64())
    };
}

/// Keys of a spec's matrix, from the slowest to the fastest varying. An axis that depends on the value of
/// another axis is read after it.
pub const KEYS: [&str; 30] = [
    "guests",
    "guest-kernels",
    "host-kernels",
    "machines",
    "workloads",
    "rate",
    "slots",
    "vms",
    "other-vms",
    "policies",
    "drivers",
    "observe",
    "told",
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
