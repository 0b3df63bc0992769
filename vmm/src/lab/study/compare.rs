//! Each point against its baselines.

use super::{
    super::{
        point::Point,
        stats::{self, Estimate, Verdict},
    },
    PointStudy,
    axis::Axis,
};
use crate::vm::PvBackend;

/// A point against one of its baselines.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Index of the point.
    pub of: usize,
    /// Index of its baseline.
    pub against: usize,
    /// In what they differ; locks differ in their backend and handoff too.
    pub axis: Axis,
    /// Median over median; None when the baseline's is zero.
    pub ratio: Option<Estimate>,
    /// Median of the ratios of repetitions that were neighbours in time.
    pub paired: Option<Estimate>,
    /// How many of those there are.
    pub pairs: usize,
    /// Of a permutation test, adjusted for all comparisons.
    pub verdict: Verdict,
}

/// Which way a comparison goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// More than the baseline.
    More,
    /// Less than the baseline.
    Less,
    /// No difference is seen.
    Unclear,
    /// Fewer than [`stats::ENOUGH`] of either.
    TooFew,
}

impl Comparison {
    /// Which way it goes. A difference is one whose adjusted p is small enough.
    pub fn outcome(&self, points: &[PointStudy]) -> Outcome {
        let count = |ix: usize| points.get(ix).map_or(0, |point| point.repetitions.len());
        let median = |ix: usize| points.get(ix).and_then(|point| Some(point.rate?.median.value));
        if count(self.of).min(count(self.against)) < stats::ENOUGH {
            return Outcome::TooFew;
        }
        match (median(self.of), median(self.against)) {
            (Some(of), Some(against)) if self.verdict.significant && of > against => Outcome::More,
            (Some(of), Some(against)) if self.verdict.significant && of < against => Outcome::Less,
            _ => Outcome::Unclear,
        }
    }
}

/// One series of points against another: the same comparison at each overcommit ratio.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// In what they differ.
    pub axis: Axis,
    /// Indices of comparisons, by ascending overcommit.
    pub comparisons: Vec<usize>,
}

/// Axes whose first value is the baseline of the others. Others change the work itself, and their
/// ratio says nothing.
const FIRST: [Axis; 5] =
    [Axis::Backend, Axis::Policy, Axis::Fault, Axis::Slice, Axis::SpinThreshold];

/// What a point is compared with, and in what it differs.
fn baselines(points: &[PointStudy], ix: usize) -> Vec<(usize, Axis)> {
    let point = &points[ix].point;
    let mut found: Vec<(usize, Axis)> = Vec::new();
    for (other, study) in points.iter().enumerate().filter(|(other, _)| *other != ix) {
        if let Some(axis) = beside(&study.point, point) {
            found.push((other, axis));
        }
    }
    // Points are in order, and so the first that differs in nothing else is the plainest.
    for (other, study) in points.iter().enumerate().take(ix) {
        if let [axis] = Axis::between(&study.point, point)[..]
            && (axis == Axis::Label || FIRST.contains(&axis))
            && found.iter().all(|(_, its)| *its != axis)
        {
            found.push((other, axis));
        }
    }
    found
}

/// Is the one what locks like the other are compared with? By what they differ then.
fn beside(base: &Point, point: &Point) -> Option<Axis> {
    let serves = base.backend == point.backend || base.backend == PvBackend::Off;
    let is_baseline = base.label == point.label
        && serves
        && base.is_beside(point)
        && base.contender().is_baseline_of(&point.contender());
    let is_handoff = base.lock == point.lock;
    is_baseline.then_some(if is_handoff { Axis::Handoff } else { Axis::Lock })
}

/// All comparisons of a study, judged together.
pub fn all(points: &[PointStudy], seed: u64) -> Vec<Comparison> {
    let has_figures = |ix: &usize| points[*ix].rate.is_some();
    let which: Vec<(usize, usize, Axis)> = (0..points.len())
        .filter(has_figures)
        .flat_map(|of| baselines(points, of).into_iter().map(move |(base, axis)| (of, base, axis)))
        .filter(|(_, base, _)| has_figures(base))
        .collect();
    let samples: Vec<(Vec<f64>, Vec<f64>)> =
        which.iter().map(|(of, base, _)| (points[*of].rates(), points[*base].rates())).collect();
    let verdicts = stats::judge(&samples, seed);
    let judged = which.into_iter().zip(&samples).zip(verdicts);
    judged
        .map(|(((of, against, axis), (above, below)), verdict)| {
            let pairs = points[of].pairs(&points[against]);
            Comparison {
                of,
                against,
                axis,
                ratio: stats::ratio_of_medians(above, below, seed).filter(is_finite),
                paired: stats::ratio_of_pairs(&pairs).filter(is_finite),
                pairs: pairs.len(),
                verdict,
            }
        })
        .collect()
}

/// A ratio of figures at the ends of what numbers can say may be none.
pub(super) fn is_finite(estimate: &Estimate) -> bool {
    estimate.value.is_finite()
}

/// The comparisons, series by series.
pub fn findings(points: &[PointStudy], comparisons: &[Comparison]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for (ix, comparison) in comparisons.iter().enumerate() {
        let same = found.iter_mut().find(|finding| {
            let first = &comparisons[finding.comparisons[0]];
            let alike = |a: usize, b: usize| is_of_a_series(&points[a].point, &points[b].point);
            finding.axis == comparison.axis
                && alike(first.of, comparison.of)
                && alike(first.against, comparison.against)
        });
        match same {
            Some(finding) => finding.comparisons.push(ix),
            None => found.push(Finding { axis: comparison.axis, comparisons: vec![ix] }),
        }
    }
    let overcommit = |ix: &usize| points[comparisons[*ix].of].point.overcommit();
    for finding in &mut found {
        finding.comparisons.sort_by(|a, b| overcommit(a).total_cmp(&overcommit(b)));
    }
    found
}

/// Do both differ in nothing but how far they are overcommitted?
pub fn is_of_a_series(a: &Point, b: &Point) -> bool {
    let is_ratio = |axis: &Axis| matches!(axis, Axis::Vcpus | Axis::Vms | Axis::Slots);
    Axis::between(a, b).iter().all(is_ratio)
}
