//! Statistics: pure functions of the samples and a seed.
//!
//! Samples on a shared machine are neither normal nor free of outliers, so the centre is the median. The
//! interval of the median is exact, between two of the samples themselves: with few samples, a percentile
//! bootstrap of the median covers the true value too rarely (in 88 to 92 % of simulations with 15 samples).
//! Reports also show the bootstrap interval, for comparison with published figures. The ratio of two medians
//! has no exact interval, so it is bootstrapped; over several blocks, the median ratio of pairs has an exact
//! interval. [`judge`] decides whether two sets differ at all, for all comparisons together.
//!
//! All results are checked against NumPy, SciPy and statsmodels, see `reference_tests`.

pub mod correction;
mod judgement;
pub mod outliers;
pub mod permutation;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;

pub use judgement::{
    Blocks, LEVEL, Verdict, can_differ, is_contrary, judge, judge_in_blocks, lowest_p_in_blocks,
    samples_against, samples_in_blocks, sizes, total,
};
pub use permutation::Direction;

use serde::Serialize;

use base::rng::SplitMix64;

/// Resamples of a bootstrap. With 4000, the ends of a 95 % interval move by about half a percent of its width
/// between seeds.
const RESAMPLES: usize = 4000;

/// Probability outside each end of an interval.
const TAIL: f64 = 0.025;

/// Minimum number of samples that bound the median with 95 % confidence: it lies between the lowest and the
/// highest of n samples with probability 1 - 2^(1-n).
pub const ENOUGH: usize = 6;

/// A 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` is in the interval, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// A figure with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimated value.
    pub value: f64,
    /// The 95 % confidence interval; None for too few samples, in one block fewer than [`ENOUGH`].
    pub interval: Option<Interval>,
}

/// Summary of a set of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Number of samples.
    pub count: usize,
    /// The lowest sample.
    pub min: f64,
    /// The highest sample.
    pub max: f64,
    /// The median with its interval.
    pub median: Estimate,
    /// The arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (n - 1); None for a single sample.
    pub stddev: Option<f64>,
}

/// Summarises `samples`; None without samples.
pub fn summarise(samples: &[f64]) -> Option<Summary> {
    let min = samples.iter().copied().reduce(f64::min)?;
    let max = samples.iter().copied().reduce(f64::max)?;
    let median = median_estimate(samples)?;
    Some(Summary {
        count: samples.len(),
        min,
        max,
        median,
        mean: mean(samples),
        stddev: stddev(samples),
    })
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

fn stddev(samples: &[f64]) -> Option<f64> {
    if samples.len() < 2 {
        return None;
    }
    let mean = mean(samples);
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    Some((squares / (samples.len() - 1) as f64).sqrt())
}

/// Quartiles of samples; they assume nothing about the distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quartiles {
    /// The lowest sample.
    pub min: f64,
    /// First quartile.
    pub lower: f64,
    /// The median.
    pub median: f64,
    /// Third quartile.
    pub upper: f64,
    /// The highest sample.
    pub max: f64,
}

/// Returns the quartiles of `samples`, interpolated between neighbours (type 7 of Hyndman and Fan, 1996);
/// None without samples.
pub fn quartiles(samples: &[f64]) -> Option<Quartiles> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = |share: f64| {
        let place = share * last as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    };
    let [min, lower, median, upper, max] = [0.0, 0.25, 0.5, 0.75, 1.0].map(at);
    Some(Quartiles { min, lower, median, upper, max })
}

/// Returns the median; None without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    median_in_place(&mut samples.to_vec())
}

fn median_in_place(samples: &mut [f64]) -> Option<f64> {
    samples.sort_unstable_by(f64::total_cmp);
    let middle = samples.len() / 2;
    match samples.len() {
        0 => None,
        len if len % 2 == 1 => Some(samples[middle]),
        _ => Some(f64::midpoint(samples[middle - 1], samples[middle])),
    }
}

/// Returns the median of `samples` with its interval: the samples between which the true median lies with at
/// least 95 % confidence, regardless of the distribution. None without samples.
pub fn median_estimate(samples: &[f64]) -> Option<Estimate> {
    let mut sorted = samples.to_vec();
    let value = median_in_place(&mut sorted)?;
    let interval = order_statistic(sorted.len())
        .map(|outside| Interval { low: sorted[outside], high: sorted[sorted.len() - 1 - outside] });
    Some(Estimate { value, interval })
}

/// Returns how many samples at each end are outside the interval of the median of `n` samples. With `k`
/// outside, the interval is above the true median if at most `k` samples are below it, each with probability
/// 1/2. The result is the largest `k` for which this has at most probability [`TAIL`]; None below [`ENOUGH`].
fn order_statistic(n: usize) -> Option<usize> {
    // Computed in logarithms: 2^-n underflows from n = 1075 on.
    let mut ln_exactly = -(n as f64) * std::f64::consts::LN_2;
    let mut at_most = 0.0;
    let mut outside = None;
    for below in 0..n {
        at_most += ln_exactly.exp();
        if at_most > TAIL {
            break;
        }
        outside = Some(below);
        ln_exactly += ((n - below) as f64 / (below + 1) as f64).ln();
    }
    outside
}

/// Returns the 95 % percentile bootstrap interval of the median; None for fewer than [`ENOUGH`] samples. With
/// few samples, it is too narrow; [`median_estimate`] has the exact interval.
pub fn median_bootstrap(samples: &[f64], seed: u64) -> Option<Interval> {
    let (mut rng, mut scratch) = (SplitMix64::new(seed), Vec::new());
    let enough = samples.len() >= ENOUGH;
    enough.then(|| bootstrap(|| Some(resampled_median(samples, &mut rng, &mut scratch))))?
}

/// Returns the ratio of the medians of two independent sets of samples; None if a set is empty or `below` has
/// a median of zero. Resamples with a denominator of zero count as an infinite ratio, and are ignored if the
/// numerator is zero, too.
pub fn ratio_of_medians(above: &[f64], below: &[f64], seed: u64) -> Option<Estimate> {
    let (numerator, denominator) = (median(above)?, median(below)?);
    if denominator == 0.0 {
        return None;
    }
    let enough = above.len().min(below.len()) >= ENOUGH;
    let interval = enough.then(|| {
        let mut rng = SplitMix64::new(seed);
        let mut scratch = Vec::new();
        bootstrap(|| {
            let above = resampled_median(above, &mut rng, &mut scratch);
            ratio(above, resampled_median(below, &mut rng, &mut scratch))
        })
    });
    Some(Estimate { value: numerator / denominator, interval: interval.flatten() })
}

/// Variant of [`ratio_of_medians`] for samples taken in blocks, whose speeds may differ: the median of the ratios of all
/// pairs within a block (Hodges and Lehmann, 1963). The interval contains the ratios that the permutation test of
/// [`judge_in_blocks`] would not reject, so it covers the true ratio with 95 % or more, however few samples a block
/// has on one side. Blocks without both sides are ignored.
pub fn ratio_in_blocks(blocks: &[(Vec<f64>, Vec<f64>)], seed: u64) -> Option<Estimate> {
    let both: Vec<_> =
        blocks.iter().filter(|(above, below)| !above.is_empty() && !below.is_empty()).collect();
    if let [(above, below)] = both[..] {
        return ratio_of_medians(above, below, seed);
    }
    let pairs = both.iter().flat_map(|(above, below)| {
        above.iter().flat_map(move |above| below.iter().map(move |below| (*above, *below)))
    });
    let mut ratios: Vec<f64> =
        pairs.clone().filter_map(|(above, below)| ratio(above, below)).collect();
    let value = median_in_place(&mut ratios)?;
    let outside = permutation::ratios_outside(&sizes(blocks));
    let interval = outside
        .filter(|_| ratios.len() == pairs.count())
        .map(|outside| Interval { low: ratios[outside], high: ratios[ratios.len() - 1 - outside] });
    value.is_finite().then_some(Estimate { value, interval })
}

/// Returns the median over pairs of the ratio within the pair; None if there are no pairs or the ratio is
/// infinite. Runs of a pair are neighbours in time, so slow changes of the host cancel out. Pairs of two
/// zeros have no ratio.
pub fn ratio_of_pairs(pairs: &[(f64, f64)]) -> Option<Estimate> {
    let ratios: Vec<f64> =
        pairs.iter().filter_map(|(above, below)| ratio(*above, *below)).collect();
    median_estimate(&ratios).filter(|estimate| estimate.value.is_finite())
}

/// Returns None for 0/0.
fn ratio(above: f64, below: f64) -> Option<f64> {
    (above != 0.0 || below != 0.0).then_some(above / below)
}

fn resampled_median(samples: &[f64], rng: &mut SplitMix64, scratch: &mut Vec<f64>) -> f64 {
    scratch.clear();
    scratch.extend((0..samples.len()).map(|_| samples[rng.below(samples.len())]));
    median_in_place(scratch).unwrap_or(0.0)
}

/// Returns the percentile interval of the values of `resample`, if more than half of its results are values.
fn bootstrap(mut resample: impl FnMut() -> Option<f64>) -> Option<Interval> {
    let mut drawn: Vec<f64> = (0..RESAMPLES).filter_map(|_| resample()).collect();
    if drawn.len() <= RESAMPLES / 2 {
        return None;
    }
    drawn.sort_unstable_by(f64::total_cmp);
    let skipped = (drawn.len() as f64 * TAIL) as usize;
    Some(Interval { low: drawn[skipped], high: drawn[drawn.len() - 1 - skipped] })
}

/// Measures of an even distribution of operations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fairness {
    /// The smallest share divided by the largest: 1 is even; at 0, at least one vCPU got nothing.
    pub min_over_max: f64,
    /// Jain's index of n shares: the squared sum, divided by n times the sum of squares. 1 is even; at
    /// 1/n, one vCPU got everything.
    pub jain: f64,
    /// Share of the busier half of the vCPUs, D. Dice's fairness factor: 0.5 is even; at 1, the other half
    /// got nothing. For an odd number of vCPUs, half of the middle vCPU's share counts.
    pub busier_half: f64,
}

fn busier_half(shares: &[u64]) -> f64 {
    let mut sorted = shares.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let half = sorted.len() / 2;
    let middle = if sorted.len() % 2 == 1 { sorted[half] as f64 / 2.0 } else { 0.0 };
    sorted[..half].iter().map(|share| *share as f64).sum::<f64>() + middle
}

/// Returns the fairness of `shares`; None without shares, or if all are zero.
pub fn fairness(shares: &[u64]) -> Option<Fairness> {
    let max = shares.iter().copied().max().filter(|max| *max > 0)?;
    let min = shares.iter().copied().min()?;
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    Some(Fairness {
        min_over_max: min as f64 / max as f64,
        jain: sum * sum / (shares.len() as f64 * squares),
        busier_half: busier_half(shares) / sum,
    })
}
