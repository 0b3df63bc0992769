//! Outliers among samples. They are flagged and never left out: on a shared machine, they are part
//! of the result.

use super::{mean, median};

/// Modified z-score above which a sample is an outlier (Iglewicz and Hoaglin, 1993).
const MAX_SCORE: f64 = 3.5;

/// Minimum number of samples to flag outliers: among three, two that are close by chance would make
/// the third an outlier.
pub const ENOUGH: usize = 5;

/// Flags outliers by their distance from the median relative to the median distance, which outliers
/// themselves do not move. Rates differ by factors, so if all samples are positive, their logarithms
/// are used. Nothing is flagged among fewer than [`ENOUGH`] samples.
pub fn flags(samples: &[f64]) -> Vec<bool> {
    scores(samples).into_iter().map(|score| score.abs() > MAX_SCORE).collect()
}

/// Returns the modified z-scores of `samples`.
pub(super) fn scores(samples: &[f64]) -> Vec<f64> {
    if samples.len() < ENOUGH {
        return vec![0.0; samples.len()];
    }
    let is_positive = samples.iter().all(|sample| *sample > 0.0);
    let scaled = |sample: &f64| if is_positive { sample.ln() } else { *sample };
    let scaled: Vec<f64> = samples.iter().map(scaled).collect();
    let centre = median(&scaled).unwrap_or(0.0);
    let unit = unit(&scaled.iter().map(|sample| (sample - centre).abs()).collect::<Vec<_>>());
    scaled.iter().map(|sample| unit.map_or(0.0, |unit| (sample - centre) / unit)).collect()
}

/// Estimates the standard deviation from these distances from the median: by their median, or by
/// their mean if more than half of them are zero. None if all are zero.
fn unit(distances: &[f64]) -> Option<f64> {
    // For normal samples the median distance is 0.6745 standard deviations, the mean distance
    // sqrt(2 / pi).
    const NORMAL_MEDIAN: f64 = 0.6745;
    const NORMAL_MEAN: f64 = 0.797_884_560_802_865_4;
    let units = [median(distances)? / NORMAL_MEDIAN, mean(distances) / NORMAL_MEAN];
    units.into_iter().find(|unit| *unit > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [f64; 0] = [];

    fn flagged(samples: &[f64]) -> Vec<f64> {
        let flags = flags(samples);
        assert_eq!(flags.len(), samples.len());
        samples.iter().zip(flags).filter(|(_, flag)| *flag).map(|(sample, _)| *sample).collect()
    }

    #[test]
    fn flags_distant_samples() {
        assert_eq!(flagged(&[10.0, 11.0, 9.0, 10.5, 0.2, 9.5, 10.2]), [0.2]);
        assert_eq!(flagged(&[10.0, 11.0, 9.0, 10.5, 9.5, 10.2]), NONE);
        assert_eq!(flagged(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]), NONE, "factors are even");
        assert_eq!(flagged(&[0.0, 1.0, 2.0, 1.5, 900.0, -1.0]), [900.0], "no logarithms");
    }

    #[test]
    fn mostly_equal_samples_use_the_mean_distance() {
        assert_eq!(flagged(&[5.0; 9]), NONE);
        assert_eq!(flagged(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0]), [3.0]);
        assert_eq!(flagged(&[5.0, 5.0, 5.0, 5.0, 5.0, 6.0, 7.0, 8.0]), NONE);
    }

    #[test]
    fn few_samples_have_no_outliers() {
        assert_eq!(flagged(&[1.0, 1.001, 50.0, 1.0]), NONE);
        assert_eq!(flagged(&[]), NONE);
    }
}
