//! The axes of a matrix: what a spec can give several values, and points can differ in.

use serde::Serialize;

use crate::point::{HostKind, Point};

/// Makes [`Axis`] from one entry an axis: its key in a spec (None: a spec cannot vary it), its name in a
/// report, the field of [`Point`] that has its value, and that value as a spec writes it.
macro_rules! axes {
    ($(
        $(#[$doc:meta])*
        $axis:ident: $key:expr, $name:literal, $field:ident, |$point:ident| $text:expr;
    )*) => {
        /// A field of a point that a spec can give several values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Axis {
            $($(#[$doc])* $axis,)*
        }

        impl Axis {
            /// All axes, in the order in which a point's name lists them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$axis),*];

            /// Key in a spec and for `--only`; None: it cannot be selected.
            pub const fn key(self) -> Option<&'static str> {
                match self {
                    $(Self::$axis => $key,)*
                }
            }

            /// Name in a report.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$axis => $name,)*
                }
            }

            /// A point's value on this axis, as a spec writes it.
            pub fn value(self, point: &Point) -> String {
                match self {
                    $(Self::$axis => { let $point = point; $text })*
                }
            }

            /// Do both points have the same value on this axis? Does not format the values, because
            /// studies ask this for all pairs of points.
            fn is_same(self, a: &Point, b: &Point) -> bool {
                match self {
                    $(Self::$axis => a.$field == b.$field,)*
                }
            }
        }
    };
}

axes! {
    /// A label that tells otherwise identical points apart.
    Label: Some("labels"), "label", label, |point| point.label.clone();
    /// Payload, Linux or simulated.
    Guest: Some("guests"), "guest", guest, |point| point.guest.name().to_owned();
    /// The simulated machine.
    Machine: Some("machines"), "simulated machine", machine, |point| point.machine.clone();
    /// The host that runs it, direct or emulated.
    Host: None, "place", host, |point| host_name(point.host).to_owned();
    /// The guest's workload.
    Workload: Some("workloads"), "workload", workload, |point| point.workload.clone();
    /// The system of the lock library.
    Lock: Some("locks"), "lock", lock, |point| point.lock.name().to_owned();
    /// The PV backend.
    Backend: Some("backends"), "backend", backend, |point| point.backend.name().to_owned();
    /// The options for cheaper handoffs of PV locks.
    Handoff: Some("handoffs"), "handoff", handoff, |point| point.handoff.to_string();
    /// The scheduling policy.
    Policy: Some("policies"), "policy", policy, |point| point.policy.to_string();
    /// What carries out the schedule.
    Driver: Some("drivers"), "driver", driver, |point| point.driver.to_string();
    /// The injected faults.
    Fault: Some("faults"), "fault", fault, |point| point.fault.map_or("none".to_owned(), |fault| fault.to_string());
    /// Pause-loop exits of the simulated host.
    Ple: Some("ple"), "pause-loop exits", ple, |point| or_off(point.ple);
    /// Halt polling of the simulated host.
    HaltPoll: Some("halt-poll"), "halt polling", halt_poll, |point| or_off(point.halt_poll);
    /// Other threads of the simulated host.
    Noise: Some("noise"), "background noise", noise, |point| or_off(point.noise);
    /// Features of the host's scheduler that are switched.
    SchedFeatures: Some("sched-features"), "features", sched_features, |point| point.sched_features.as_ref().map_or("none".to_owned(), ToString::to_string);
    /// Control groups of the vCPUs' threads.
    Cgroups: Some("cgroups"), "cgroups", cgroups, |point| point.cgroups.as_ref().map_or("none".to_owned(), ToString::to_string);
    /// vCPUs per machine.
    Vcpus: Some("vcpus"), "vCPUs", vcpus, |point| point.vcpus.to_string();
    /// Number of machines.
    Vms: Some("vms"), "VMs", vms, |point| point.vms.to_string();
    /// Machines of other sizes.
    OtherVms: Some("other-vms"), "other VMs", other_vms, |point| point.other_vms.as_ref().map_or("none".to_owned(), ToString::to_string);
    /// Number of slots.
    Slots: Some("slots"), "slots", slots, |point| point.slots.to_string();
    /// The time slice.
    Slice: Some("slice"), "slice", slice, |point| point.slice.to_string();
    /// Looks at the lock before a waiter halts.
    SpinThreshold: Some("spin-threshold"), "spin threshold", spin_threshold, |point| point.spin_threshold.to_string();
    /// Work inside the critical section.
    Critical: Some("critical"), "critical section", critical, |point| point.critical.to_string();
    /// Work between two operations.
    Think: Some("think"), "think time", think, |point| point.think.to_string();
    /// Length of the window.
    Seconds: Some("seconds"), "seconds", duration, |point| point.duration.as_secs_f64().to_string();
}

/// The keys of a spec's matrix, from the slowest to the fastest varying.
pub const KEYS: [&str; 25] = [
    "guests",
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
    "sched-features",
    "cgroups",
    "critical",
    "think",
    "spin-threshold",
    "seconds",
    "vcpus",
    "seeds",
    "labels",
    "locks",
    "backends",
    "handoffs",
];

/// The value of a point for a key of a spec's matrix, as a spec writes it; empty for an unknown key.
pub fn value(point: &Point, key: &str) -> String {
    match Axis::ALL.into_iter().find(|axis| axis.key() == Some(key)) {
        Some(axis) => axis.value(point),
        // Repetitions that differ only in the seed are of one point.
        None if key == "seeds" => point.seed.to_string(),
        None => String::new(),
    }
}

/// What a spec writes for what is not asked for.
pub(crate) const OFF: &str = "off";

fn or_off(value: Option<impl ToString>) -> String {
    value.map_or_else(|| OFF.to_owned(), |value| value.to_string())
}

const fn host_name(host: HostKind) -> &'static str {
    match host {
        HostKind::Direct => "this host",
        HostKind::Emulated => "emulated host",
    }
}

impl Axis {
    /// A point's value on an axis of numbers; times are in nanoseconds, the window in seconds.
    pub fn number(self, point: &Point) -> Option<f64> {
        Some(match self {
            Self::Vcpus => point.vcpus.get().into(),
            Self::Vms => point.vms.into(),
            Self::Slots => point.slots.into(),
            Self::Slice => point.slice.0 as f64,
            Self::SpinThreshold => point.spin_threshold.into(),
            Self::Critical => point.critical.into(),
            Self::Think => point.think.into(),
            Self::Seconds => point.duration.as_secs_f64(),
            Self::Label | Self::Guest | Self::Machine | Self::Host | Self::Workload => return None,
            Self::Lock | Self::Backend | Self::Handoff => return None,
            Self::Policy | Self::Driver => return None,
            Self::Fault | Self::Ple | Self::HaltPoll | Self::Noise => return None,
            Self::SchedFeatures | Self::Cgroups | Self::OtherVms => return None,
        })
    }

    /// The axes along which `points` differ.
    pub fn varying<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Vec<Self> {
        let mut rest = points.clone();
        let Some(first) = rest.next() else { return Vec::new() };
        let differs = |axis: &Self| rest.clone().any(|point| !axis.is_same(first, point));
        Self::ALL.into_iter().filter(differs).collect()
    }

    /// The axes along which two points differ.
    pub fn between(a: &Point, b: &Point) -> Vec<Self> {
        Self::varying([a, b].into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_can_vary_every_axis_that_has_a_key() {
        let mut keys: Vec<&str> = Axis::ALL.into_iter().filter_map(Axis::key).collect();
        keys.push("seeds");
        keys.sort_unstable();
        let mut of_matrix = KEYS;
        of_matrix.sort_unstable();
        assert_eq!(keys, of_matrix);
    }
}
