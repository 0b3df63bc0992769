//! Compares each point with its baselines.

use serde::Serialize;

use super::{
    super::{
        axis::Axis,
        point::Point,
        stats::{self, Direction, Estimate, Verdict},
    },
    Layout, PointStudy,
};
use base::backend::PvBackend;

/// The comparison of a point with one of its baselines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Index of the point.
    #[serde(rename = "of")]
    pub subject: usize,
    /// Index of its baseline.
    pub against: usize,
    /// The axis along which both differ; locks may also differ in backend and handoff.
    pub axis: Axis,
    /// Ratio of the medians, within blocks (nodes or hosts). None if it is infinite or has no value.
    pub ratio: Option<Estimate>,
    /// Median of the ratios of repetitions paired by round.
    pub paired: Option<Estimate>,
    /// Number of paired repetitions.
    pub pairs: usize,
    /// Repetitions of both sides in each block that has both.
    #[serde(skip)]
    pub places: Vec<(usize, usize)>,
    /// Number of comparisons that are tested together.
    #[serde(skip)]
    pub tested: usize,
    /// Verdict of a permutation test, adjusted for all comparisons.
    pub verdict: Verdict,
}

/// The direction of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// More than the baseline.
    More,
    /// Less than the baseline.
    Less,
    /// No significant difference.
    Unclear,
    /// Too few repetitions in the same blocks for a significant difference.
    TooFew,
    /// No block has repetitions of both points.
    Apart,
}

impl Outcome {
    /// Returns the outcome of one of `tested` comparisons, with these numbers of repetitions in each place.
    pub fn new(verdict: &Verdict, places: &[(usize, usize)], tested: usize) -> Self {
        match verdict.direction {
            _ if places.is_empty() => Self::Apart,
            Direction::More if verdict.significant => Self::More,
            Direction::Less if verdict.significant => Self::Less,
            _ if !stats::can_differ(places, tested) => Self::TooFew,
            _ => Self::Unclear,
        }
    }
}

impl Comparison {
    /// Returns the direction of the difference, which counts if its adjusted p is significant.
    pub fn outcome(&self) -> Outcome {
        Outcome::new(&self.verdict, &self.places, self.tested)
    }

    /// Whether its direction, which is determined by ranks, contradicts its ratio of medians.
    pub fn is_contrary(&self) -> bool {
        stats::is_contrary(&self.verdict, self.ratio)
    }

    /// Returns the number of repetitions of each side, in the same blocks, that could suffice for a verdict.
    pub fn min_repetitions(&self) -> usize {
        stats::samples_in_blocks(self.tested, self.places.len().max(1))
    }
}

/// A comparison of two series of points, or of the points of one series with their baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesComparison {
    /// The axis along which they differ.
    pub axis: Axis,
    /// Indices of comparisons, in the order of the charts' axis.
    pub comparisons: Vec<usize>,
}

/// Returns the baselines of a point, each with the axis along which it differs from the point.
fn baselines(points: &[PointStudy], ix: usize) -> Vec<(usize, Axis)> {
    let point = &points[ix].point;
    let mut baselines: Vec<(usize, Axis)> = Vec::new();
    for (other, study) in points.iter().enumerate().filter(|(other, _)| *other != ix) {
        if let Some(axis) = baseline_axis(&study.point, point) {
            baselines.push((other, axis));
        }
    }
    // Points are sorted, so the first point that differs only along this axis is the plainest.
    for (other, study) in points.iter().enumerate().take(ix) {
        if let [axis] = Axis::between(&study.point, point)[..]
            && (axis == Axis::Label || axis.has_baseline())
            && baselines.iter().all(|(_, known)| *known != axis)
        {
            baselines.push((other, axis));
        }
    }
    baselines
}

/// Returns the axis along which `base` and `point` differ, if `base` is a baseline of the lock of `point`.
fn baseline_axis(base: &Point, point: &Point) -> Option<Axis> {
    let serves = base.backend == point.backend || base.backend == PvBackend::Off;
    let is_baseline =
        base.label == point.label && serves && base.is_peer_of(point) && base.is_baseline_of(point);
    let is_handoff = base.lock == point.lock;
    is_baseline.then_some(if is_handoff { Axis::Handoff } else { Axis::Lock })
}

/// Returns all comparisons of a study, tested together.
pub fn compare_all(points: &[PointStudy], seed: u64) -> Vec<Comparison> {
    let has_figures = |ix: &usize| points[*ix].rate.is_some();
    let pairs: Vec<(usize, usize, Axis)> = (0..points.len())
        .filter(has_figures)
        .flat_map(|subject| {
            baselines(points, subject).into_iter().map(move |(base, axis)| (subject, base, axis))
        })
        .filter(|(_, base, _)| has_figures(base))
        .collect();
    let blocks: Vec<stats::Blocks> =
        pairs.iter().map(|(subject, base, _)| points[*subject].blocks(&points[*base])).collect();
    let verdicts = stats::judge_in_blocks(&blocks, seed);
    let tested = verdicts.iter().filter(|verdict| verdict.p.is_some()).count();
    let judged = pairs.into_iter().zip(&blocks).zip(verdicts);
    judged
        .map(|(((subject, against, axis), blocks), verdict)| {
            let pairs = points[subject].pairs(&points[against]);
            Comparison {
                subject,
                against,
                axis,
                ratio: stats::ratio_in_blocks(blocks, seed).filter(is_finite),
                paired: stats::ratio_of_pairs(&pairs).filter(is_finite),
                pairs: pairs.len(),
                places: stats::sizes(blocks),
                tested,
                verdict,
            }
        })
        .collect()
}

/// A ratio of extreme figures may overflow.
pub(super) fn is_finite(estimate: &Estimate) -> bool {
    estimate.value.is_finite()
}

/// Groups the comparisons into series along the axis of the charts.
pub fn findings(
    points: &[PointStudy],
    comparisons: &[Comparison],
    layout: &Layout,
) -> Vec<SeriesComparison> {
    let mut series: Vec<SeriesComparison> = Vec::new();
    for (ix, comparison) in comparisons.iter().enumerate() {
        let same = series.iter_mut().find(|finding| {
            let first = &comparisons[finding.comparisons[0]];
            let alike = |a: usize, b: usize| layout.is_along_x(&points[a].point, &points[b].point);
            // Comparisons of one series share their baseline: on an axis of locks, each family has its own.
            let have_same_baseline = first.against == comparison.against;
            let is_one_series = alike(first.subject, first.against);
            finding.axis == comparison.axis
                && alike(first.subject, comparison.subject)
                && alike(first.against, comparison.against)
                && (have_same_baseline || !is_one_series)
        });
        match same {
            Some(finding) => finding.comparisons.push(ix),
            None => series.push(SeriesComparison { axis: comparison.axis, comparisons: vec![ix] }),
        }
    }
    // Categories keep the order of the points.
    let place =
        |ix: &usize| layout.position(&points[comparisons[*ix].subject].point).unwrap_or(0.0);
    for finding in &mut series {
        finding.comparisons.sort_by(|a, b| place(a).total_cmp(&place(b)));
    }
    series
}
