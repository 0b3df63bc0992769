//! The order in which points are shown.

use std::cmp::Ordering;

use crate::{
    axis::{Axis, LOCK_AXES as INNER},
    point::Point,
    spec,
};

/// The spec's order; values that the spec does not list follow, from plain to special. The first value of
/// an axis is the baseline of the others.
#[derive(Debug, Default, Clone)]
pub struct PointOrder(Vec<(Axis, Vec<String>)>);

impl PointOrder {
    /// Reads the order of a spec; empty if it cannot be parsed.
    pub fn from_spec(spec: &str) -> Self {
        let values = |axis: Axis| Some((axis, spec::values(spec, axis.key()?)));
        Self(Axis::ALL.into_iter().filter_map(values).collect())
    }

    /// Compares the positions of two points.
    pub fn compare(&self, a: &Point, b: &Point) -> Ordering {
        // The lock and the overcommit ratio vary fastest.
        let (inner, outer): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(axis, _)| INNER.contains(axis));
        let in_spec = |axes: &[&(Axis, Vec<String>)]| {
            let place = |values: &[String], value: &str| {
                values.iter().position(|known| known == value).unwrap_or(values.len())
            };
            let compare = |(axis, values): &&(Axis, Vec<String>)| {
                place(values, &axis.value(a)).cmp(&place(values, &axis.value(b)))
            };
            let is_of_ratio = |axis| matches!(axis, Axis::Vcpus | Axis::Vms | Axis::Slots);
            let axes = axes.iter().filter(|(axis, _)| !is_of_ratio(*axis));
            axes.map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        in_spec(&outer)
            .then_with(|| plain_outer(a, b))
            .then_with(|| in_spec(&inner))
            .then_with(|| plain_inner(a, b))
    }
}

/// Orders points whose values no spec lists, along all axes except those that vary fastest.
fn plain_outer(a: &Point, b: &Point) -> Ordering {
    let outer = Axis::ALL.into_iter().filter(|axis| !INNER.contains(axis) && *axis != Axis::Vcpus);
    plain(outer, a, b)
}

fn plain_inner(a: &Point, b: &Point) -> Ordering {
    plain(INNER.into_iter().chain([Axis::Vcpus]), a, b)
}

fn plain(mut axes: impl Iterator<Item = Axis>, a: &Point, b: &Point) -> Ordering {
    let first = axes.find_map(|axis| Some(axis.order(a, b)).filter(|order| order.is_ne()));
    first.unwrap_or(Ordering::Equal)
}
