//! Placement of a study's axes in its charts.
//!
//! A chart draws its values along the axis `x`. Each combination of the values of the *facets* has
//! a separate chart. The other axes that vary distinguish the *series* within a chart. A spec can
//! name `x` and the facets. By default, `x` is the overcommit ratio if it varies, or else the axis
//! with most values, and the series are the locks with their options and the drivers.

use std::collections::{HashMap, HashSet};

use super::{super::spec::Charts, Axis};
use crate::{axis::LOCK_AXES, point::Point};

/// Settings whose defaults depend on the guest.
const GUEST_DEFAULTS: [Axis; 2] = [Axis::SpinThreshold, Axis::Seconds];

/// Axes that can change the overcommit ratio.
const COUNTS: [Axis; 3] = [Axis::Vcpus, Axis::Vms, Axis::Slots];

/// Role of an axis in charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Charts draw along it.
    X,
    /// Each of its values has separate charts.
    Facet,
    /// Its values distinguish series.
    Series,
    /// The axis does not vary, or other axes determine its value.
    None,
}

/// Axes of a study's charts.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// The axis along which charts draw.
    pub x: Axis,
    /// The axes whose values have separate charts.
    pub facets: Vec<Axis>,
    /// The axes that distinguish the series of a chart.
    pub series: Vec<Axis>,
    /// Whether positions along `x` are overcommit ratios.
    pub is_ratio: bool,
    /// Whether positions along `x` are positive numbers; otherwise its values are categories.
    is_numeric: bool,
}

impl Layout {
    /// Chooses the axes. The points differ along the axes `varying`, and the spec names the axes
    /// `charts`. Named axes that do not vary are left out.
    pub fn new(points: &[&Point], varying: &[Axis], charts: &Charts) -> Self {
        let axis_for = |key: &str| varying.iter().copied().find(|axis| axis.key() == Some(key));
        let chosen = charts.facets.as_ref();
        let chosen: Option<Vec<Axis>> =
            chosen.map(|keys| keys.iter().filter_map(|key| axis_for(key)).collect());
        let facets = chosen.clone().unwrap_or_default();
        let ratios: HashSet<u64> =
            points.iter().map(|point| point.overcommit().to_bits()).collect();
        let spec_x = charts.x.and_then(axis_for);
        let free: Vec<Axis> =
            varying.iter().copied().filter(|axis| !facets.contains(axis)).collect();
        let x = spec_x.unwrap_or_else(|| default_x(points, &free, ratios.len() > 1));
        let is_ratio = ratios.len() > 1
            && (matches!(x, Axis::Vcpus | Axis::Vms) || x == Axis::Slots && spec_x.is_none());
        let others = || varying.iter().copied().filter(move |axis| *axis != x);
        let facets = chosen.unwrap_or_else(|| {
            // All drivers implement the same schedule and belong side by side.
            let is_series_axis = |axis: &Axis| LOCK_AXES.contains(axis) || *axis == Axis::Driver;
            // The guest already implies these defaults.
            let is_default = |axis: &Axis| {
                GUEST_DEFAULTS.contains(axis)
                    && varying.contains(&Axis::Guest)
                    && is_implied_by(points, *axis, &[Axis::Guest])
            };
            let facets = others().filter(|axis| !is_series_axis(axis) && !is_default(axis));
            facets.filter(|axis| is_ratio || !is_implied_by(points, *axis, &[x])).collect()
        });
        let known = [&[x], facets.as_slice()].concat();
        let series =
            others().filter(|axis| !facets.contains(axis) && !is_implied_by(points, *axis, &known));
        let mut layout = Self { x, series: series.collect(), facets, is_ratio, is_numeric: false };
        let is_positive = |point: &&Point| layout.number(point).is_some_and(|x| x > 0.0);
        layout.is_numeric = points.iter().all(is_positive);
        layout
    }

    /// Returns the role of an axis.
    pub fn role(&self, axis: Axis) -> Role {
        match axis {
            axis if axis == self.x => Role::X,
            axis if self.facets.contains(&axis) => Role::Facet,
            axis if self.series.contains(&axis) => Role::Series,
            _ => Role::None,
        }
    }

    /// Returns a point's position along `x`; None if the values of `x` are categories.
    pub fn position(&self, point: &Point) -> Option<f64> {
        self.number(point).filter(|_| self.is_numeric)
    }

    fn number(&self, point: &Point) -> Option<f64> {
        if self.is_ratio { Some(point.overcommit()) } else { self.x.number(point) }
    }

    /// Whether both points belong to one series of one chart: they differ only along `x` and in
    /// values determined by it.
    pub fn is_along_x(&self, a: &Point, b: &Point) -> bool {
        let is_x = |axis: &Axis| match self.role(*axis) {
            Role::X | Role::None => true,
            Role::Facet | Role::Series => self.is_ratio && COUNTS.contains(axis),
        };
        Axis::between(a, b).iter().all(is_x)
    }

    /// Returns the point's values of the facets.
    pub fn facet(&self, point: &Point) -> Vec<String> {
        self.facets.iter().map(|axis| axis.value(point)).collect()
    }
}

fn default_x(points: &[&Point], free: &[Axis], has_ratios: bool) -> Axis {
    let ratio = COUNTS.into_iter().find(|axis| has_ratios && free.contains(axis));
    let values =
        |axis: &Axis| points.iter().map(|point| axis.value(point)).collect::<HashSet<_>>().len();
    let other_axes = free.iter().copied().filter(|axis| !LOCK_AXES.contains(axis));
    // Among axes with equally many values, an axis with a baseline is preferred, then the first.
    let most_values = other_axes.rev().max_by_key(|axis| (values(axis), axis.has_baseline()));
    let lock_axis = LOCK_AXES.into_iter().find(|axis| free.contains(axis));
    ratio.or(most_values).or(lock_axis).unwrap_or(Axis::Lock)
}

/// Whether the values of `known` determine the value of an axis.
fn is_implied_by(points: &[&Point], axis: Axis, known: &[Axis]) -> bool {
    let mut values: HashMap<Vec<String>, String> = HashMap::new();
    points.iter().all(|point| {
        let value = axis.value(point);
        let key = known.iter().map(|axis| axis.value(point)).collect();
        *values.entry(key).or_insert_with(|| value.clone()) == value
    })
}
