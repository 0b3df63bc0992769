//! Directed yields of KVM at a point.

use sched::directed_yields::DirectedYields;
use serde::Serialize;

use crate::store::record::Figures;

/// Directed yields.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Directed {
    /// Yields per second.
    pub rate: f64,
    /// Counts over all repetitions.
    #[serde(flatten)]
    pub counts: DirectedYields,
}

impl Directed {
    /// Returns None if none were observed.
    pub(super) fn new<'a>(cells: impl Iterator<Item = &'a Figures>) -> Option<Self> {
        let (mut counts, mut seconds) = (DirectedYields::default(), 0.0);
        for schedule in cells.filter_map(|figures| figures.schedule.as_ref()) {
            counts += schedule.totals.directed;
            seconds += schedule.seconds;
        }
        let rate = counts.all() as f64 / seconds;
        (!counts.is_empty() && rate.is_finite()).then_some(Self { rate, counts })
    }
}
