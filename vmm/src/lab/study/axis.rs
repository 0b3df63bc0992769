//! What points of a matrix differ in.

use std::cmp::Ordering;

use locks::System;

use super::super::{
    point::{GuestKind, HostKind, Point},
    spec,
};
use crate::{guest::handoff::HandoffSpec, sched::policy::POLICIES, vm::PvBackend};

/// A field of a point that a spec can give several values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Tells apart what is alike.
    Label,
    /// Payload or Linux.
    Guest,
    /// Where it runs.
    Host,
    /// What the guest does.
    Workload,
    /// The system of the lock library.
    Lock,
    /// Who serves its waiters.
    Backend,
    /// How a PV lock is handed over.
    Handoff,
    /// The schedule.
    Policy,
    /// What goes wrong on purpose.
    Fault,
    /// vCPUs of a machine.
    Vcpus,
    /// Machines.
    Vms,
    /// CPUs.
    Slots,
    /// Length of a turn.
    Slice,
    /// Looks before a halt.
    SpinThreshold,
    /// Work under the lock.
    Critical,
    /// Work beside it.
    Think,
    /// Time measured.
    Seconds,
}

impl Axis {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Label,
        Self::Guest,
        Self::Host,
        Self::Workload,
        Self::Lock,
        Self::Backend,
        Self::Handoff,
        Self::Policy,
        Self::Fault,
        Self::Vcpus,
        Self::Vms,
        Self::Slots,
        Self::Slice,
        Self::SpinThreshold,
        Self::Critical,
        Self::Think,
        Self::Seconds,
    ];

    /// Its key in a spec and behind `--only`; None: it cannot be chosen.
    pub const fn key(self) -> Option<&'static str> {
        Some(match self {
            Self::Label => "labels",
            Self::Guest => "guests",
            Self::Host => return None,
            Self::Workload => "workloads",
            Self::Lock => "locks",
            Self::Backend => "backends",
            Self::Handoff => "handoffs",
            Self::Policy => "policies",
            Self::Fault => "faults",
            Self::Vcpus => "vcpus",
            Self::Vms => "vms",
            Self::Slots => "slots",
            Self::Slice => "slice",
            Self::SpinThreshold => "spin-threshold",
            Self::Critical => "critical",
            Self::Think => "think",
            Self::Seconds => "seconds",
        })
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Guest => "guest",
            Self::Host => "place",
            Self::Workload => "workload",
            Self::Lock => "lock",
            Self::Backend => "backend",
            Self::Handoff => "handoff",
            Self::Policy => "policy",
            Self::Fault => "fault",
            Self::Vcpus => "vCPUs",
            Self::Vms => "VMs",
            Self::Slots => "slots",
            Self::Slice => "slice",
            Self::SpinThreshold => "spin threshold",
            Self::Critical => "critical section",
            Self::Think => "think time",
            Self::Seconds => "seconds",
        }
    }

    /// What a point has there, as a spec has it.
    pub fn of(self, point: &Point) -> String {
        match (self.key(), point.host) {
            (Some(key), _) => point.value(key),
            (None, HostKind::Direct) => "this host".to_owned(),
            (None, HostKind::Emulated) => "emulated host".to_owned(),
        }
    }

    /// Have both the same there? Without a word written: studies ask it of all pairs of points.
    fn is_same(self, a: &Point, b: &Point) -> bool {
        match self {
            Self::Label => a.label == b.label,
            Self::Guest => a.guest == b.guest,
            Self::Host => a.host == b.host,
            Self::Workload => a.workload == b.workload,
            Self::Lock => a.lock == b.lock,
            Self::Backend => a.backend == b.backend,
            Self::Handoff => a.handoff == b.handoff,
            Self::Policy => a.policy == b.policy,
            Self::Fault => a.fault == b.fault,
            Self::Vcpus => a.vcpus == b.vcpus,
            Self::Vms => a.vms == b.vms,
            Self::Slots => a.slots == b.slots,
            Self::Slice => a.slice == b.slice,
            Self::SpinThreshold => a.spin_threshold == b.spin_threshold,
            Self::Critical => a.critical == b.critical,
            Self::Think => a.think == b.think,
            Self::Seconds => a.duration == b.duration,
        }
    }

    /// Those in which `points` differ.
    pub fn varying<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Vec<Self> {
        let mut rest = points.clone();
        let Some(first) = rest.next() else { return Vec::new() };
        let differs = |axis: &Self| rest.clone().any(|point| !axis.is_same(first, point));
        Self::ALL.into_iter().filter(differs).collect()
    }

    /// Those in which two points differ.
    pub fn between(a: &Point, b: &Point) -> Vec<Self> {
        Self::varying([a, b].into_iter())
    }
}

/// The order in which points are shown, and in which the first of an axis is the baseline of the
/// others: as the spec has them, or else what is plain before what is not.
#[derive(Debug, Default, Clone)]
pub struct Order(Vec<(Axis, Vec<String>)>);

impl Order {
    /// The spec's, as far as it can be read.
    pub fn of(spec: &str) -> Self {
        let values = |axis: Axis| Some((axis, spec::values(spec, axis.key()?)));
        Self(Axis::ALL.into_iter().filter_map(values).collect())
    }

    /// Which of two points comes first.
    pub fn compare(&self, a: &Point, b: &Point) -> Ordering {
        // The lock, and how far it is overcommitted, are the innermost.
        let inner = [Axis::Lock, Axis::Backend, Axis::Handoff, Axis::Label];
        let (within, around): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(axis, _)| inner.contains(axis));
        let by = |all: &[&(Axis, Vec<String>)]| {
            let place = |values: &[String], value: &str| {
                values.iter().position(|its| its == value).unwrap_or(values.len())
            };
            let compare = |(axis, values): &&(Axis, Vec<String>)| {
                place(values, &axis.of(a)).cmp(&place(values, &axis.of(b)))
            };
            let is_of_ratio = |axis| matches!(axis, Axis::Vcpus | Axis::Vms | Axis::Slots);
            let all = all.iter().filter(|(axis, _)| !is_of_ratio(*axis));
            all.map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        by(&around)
            .then_with(|| plain_around(a, b))
            .then_with(|| by(&within))
            .then_with(|| plain_within(a, b))
    }
}

fn plain_around(a: &Point, b: &Point) -> Ordering {
    let guest = |point: &Point| GuestKind::ALL.iter().position(|guest| *guest == point.guest);
    let policy = |point: &Point| {
        let place = POLICIES.iter().position(|policy| policy.name == point.policy.name());
        (place, point.policy.to_string())
    };
    let fault = |point: &Point| point.fault.map(|fault| fault.to_string());
    let numbers = |point: &Point| {
        (point.vms, point.slots, point.slice, point.spin_threshold, point.critical, point.think)
    };
    (guest(a).cmp(&guest(b)))
        .then_with(|| (a.host as u8).cmp(&(b.host as u8)))
        .then_with(|| a.workload.cmp(&b.workload))
        .then_with(|| policy(a).cmp(&policy(b)))
        .then_with(|| fault(a).cmp(&fault(b)))
        .then_with(|| numbers(a).cmp(&numbers(b)))
        .then_with(|| a.duration.cmp(&b.duration))
}

fn plain_within(a: &Point, b: &Point) -> Ordering {
    let lock = |point: &Point| System::ALL.iter().position(|system| *system == point.lock);
    let backend = |point: &Point| PvBackend::ALL.iter().position(|its| *its == point.backend);
    let handoff = |point: &Point| (point.handoff != HandoffSpec::NONE, point.handoff.to_string());
    (lock(a).cmp(&lock(b)))
        .then_with(|| backend(a).cmp(&backend(b)))
        .then_with(|| handoff(a).cmp(&handoff(b)))
        .then_with(|| a.label.cmp(&b.label))
        .then_with(|| a.vcpus.cmp(&b.vcpus))
}
