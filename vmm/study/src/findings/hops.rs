//! Detects migrations of the host's (virtual) CPUs by cache line transfers (hops) just before and after each cell.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    PointStudy,
    repetition::{Repetition, RepetitionPlace},
};
use crate::stats;

/// A transfer that takes this factor longer or shorter takes another path. Within a core complex or socket,
/// hops between two CPUs differ less (measured: 26 to 31 ns in one place, 160 to 170 ns in another).
pub const MOVED_FACTOR: f64 = 1.6;

/// Cells before or after which a transfer took much longer or shorter than usual.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Moved {
    /// Number of such cells.
    pub cells: usize,
    /// Number of cells with known hops.
    pub known: usize,
    /// The median hop in nanoseconds, on the first node or host with such cells.
    pub usual: f64,
    /// The hop farthest from the median there, in nanoseconds.
    pub farthest: f64,
}

impl Moved {
    /// Checks all repetitions of these points, separately for each node or host. None if no cell is affected.
    pub fn find(points: &[PointStudy]) -> Option<Self> {
        let mut places: BTreeMap<&RepetitionPlace, Vec<[Option<f64>; 2]>> = BTreeMap::new();
        for repetition in points.iter().flat_map(|point| &point.repetitions) {
            let load = &repetition.load;
            places.entry(&repetition.place).or_default().push([load.hop_before, load.hop_after]);
        }
        let moved = places.values().filter_map(|cells| moved_in(cells));
        moved.reduce(|sum, other| Self {
            cells: sum.cells + other.cells,
            known: sum.known + other.known,
            ..sum
        })
    }
}

/// Whether a hop indicates a migration, compared with the usual hop.
pub fn is_elsewhere(hop: f64, usual: f64) -> bool {
    hop > usual * MOVED_FACTOR || hop * MOVED_FACTOR < usual
}

/// The usual hop on each node or host.
#[derive(Debug)]
pub(super) struct UsualHops<'a>(BTreeMap<&'a RepetitionPlace, f64>);

impl<'a> UsualHops<'a> {
    /// Computes the medians of these points' hops.
    pub(super) fn new(points: &'a [PointStudy]) -> Self {
        let mut places: BTreeMap<&RepetitionPlace, Vec<f64>> = BTreeMap::new();
        for repetition in points.iter().flat_map(|point| &point.repetitions) {
            places.entry(&repetition.place).or_default().extend(repetition.hops());
        }
        let usual = |(place, hops): (_, Vec<f64>)| Some((place, stats::median(&hops)?));
        Self(places.into_iter().filter_map(usual).collect())
    }

    /// Whether the CPUs were in their usual place before and after the repetition, as far as known.
    pub(super) fn are_usual(&self, repetition: &Repetition) -> bool {
        self.0.get(&repetition.place).is_none_or(|usual| repetition.is_near(*usual))
    }
}

impl Repetition {
    /// Returns the known hops before and after the repetition, in nanoseconds.
    pub fn hops(&self) -> impl Iterator<Item = f64> {
        valid([self.load.hop_before, self.load.hop_after])
    }

    /// Whether no known hop indicates a migration, compared with `usual`.
    pub fn is_near(&self, usual: f64) -> bool {
        self.hops().all(|hop| !is_elsewhere(hop, usual))
    }
}

/// Filters out invalid values: a store may contain any number.
fn valid(cell: [Option<f64>; 2]) -> impl Iterator<Item = f64> {
    cell.into_iter().flatten().filter(|hop| hop.is_finite() && *hop > 0.0)
}

fn moved_in(cells: &[[Option<f64>; 2]]) -> Option<Moved> {
    let hops = cells.iter().map(|cell| valid(*cell).collect());
    let known: Vec<Vec<f64>> = hops.filter(|cell: &Vec<f64>| !cell.is_empty()).collect();
    let values = known.concat();
    let usual = stats::median(&values)?;
    let moved = |cell: &&Vec<f64>| cell.iter().any(|hop| is_elsewhere(*hop, usual));
    let count = known.iter().filter(moved).count();
    let distance = |hop: &f64| (hop / usual).ln().abs();
    let farthest = values.iter().copied().max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    (count > 0).then_some(Moved { cells: count, known: known.len(), usual, farthest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_unusual_hops_have_moved() {
        let cell = |before: f64, after: f64| [Some(before), Some(after)];
        let mut cells = vec![cell(26.0, 30.0), cell(28.0, 31.0), [None, Some(29.0)], [None; 2]];
        assert_eq!(moved_in(&cells), None);
        cells.push(cell(28.0, 163.0));
        let moved = moved_in(&cells).unwrap();
        assert_eq!((moved.cells, moved.known, moved.usual, moved.farthest), (1, 4, 29.0, 163.0));
        cells.push(cell(9.0, 28.0));
        assert_eq!(moved_in(&cells).unwrap().cells, 2, "nearer is another place, too");
        assert_eq!(moved_in(&[]), None);
        assert_eq!(moved_in(&[cell(f64::NAN, -1.0)]), None, "a store is data");
    }
}
