//! The order in which points are shown.

use std::cmp::Ordering;

use locks::System;

use crate::{
    axis::Axis,
    point::{GuestKind, Point},
    spec,
};
use base::{backend::PvBackend, handoff::HandoffSpec};
use sched::policy::POLICIES;

/// The order in which points are shown. The first value of an axis is the baseline of the others.
/// The order is that of the spec; values without a place there are sorted from plain to special.
#[derive(Debug, Default, Clone)]
pub struct Order(Vec<(Axis, Vec<String>)>);

impl Order {
    /// The order of a spec, as far as it can be parsed.
    pub fn of(spec: &str) -> Self {
        let values = |axis: Axis| Some((axis, spec::values(spec, axis.key()?)));
        Self(Axis::ALL.into_iter().filter_map(values).collect())
    }

    /// Compares the places of two points.
    pub fn compare(&self, a: &Point, b: &Point) -> Ordering {
        // The lock and the overcommit ratio vary fastest.
        let inner = [Axis::Lock, Axis::Backend, Axis::Handoff, Axis::Label];
        let (within, around): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(axis, _)| inner.contains(axis));
        let by = |all: &[&(Axis, Vec<String>)]| {
            let place = |values: &[String], value: &str| {
                values.iter().position(|other| other == value).unwrap_or(values.len())
            };
            let compare = |(axis, values): &&(Axis, Vec<String>)| {
                place(values, &axis.value(a)).cmp(&place(values, &axis.value(b)))
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
    let extras = |point: &Point| {
        let noise = point.noise.map(|noise| (noise.busy, noise.idle));
        (point.ple.map(|ple| ple.0), point.halt_poll.map(|most| most.0), noise)
    };
    let features = |point: &Point| point.sched_features.as_ref().map(ToString::to_string);
    let cgroups = |point: &Point| point.cgroups.as_ref().map(ToString::to_string);
    let numbers = |point: &Point| {
        let vms = (point.vms, point.other_vms.clone());
        (vms, point.slots, point.slice, point.spin_threshold, point.critical, point.think)
    };
    (guest(a).cmp(&guest(b)))
        .then_with(|| (a.host as u8).cmp(&(b.host as u8)))
        .then_with(|| a.machine.cmp(&b.machine))
        .then_with(|| a.workload.cmp(&b.workload))
        .then_with(|| policy(a).cmp(&policy(b)))
        .then_with(|| (a.driver as u8).cmp(&(b.driver as u8)))
        .then_with(|| fault(a).cmp(&fault(b)))
        .then_with(|| extras(a).cmp(&extras(b)))
        .then_with(|| features(a).cmp(&features(b)))
        .then_with(|| cgroups(a).cmp(&cgroups(b)))
        .then_with(|| numbers(a).cmp(&numbers(b)))
        .then_with(|| a.duration.cmp(&b.duration))
}

fn plain_within(a: &Point, b: &Point) -> Ordering {
    let lock = |point: &Point| System::ALL.iter().position(|system| *system == point.lock);
    let backend =
        |point: &Point| PvBackend::ALL.iter().position(|backend| *backend == point.backend);
    let handoff = |point: &Point| (point.handoff != HandoffSpec::NONE, point.handoff.to_string());
    (lock(a).cmp(&lock(b)))
        .then_with(|| backend(a).cmp(&backend(b)))
        .then_with(|| handoff(a).cmp(&handoff(b)))
        .then_with(|| a.label.cmp(&b.label))
        .then_with(|| a.vcpus.cmp(&b.vcpus))
}
