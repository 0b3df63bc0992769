//! Statistics of the runs of a row.

use serde::Serialize;

/// The five figures of `ministat`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    pub min: f64,
    pub max: f64,
    /// The middle value; for an even number of runs, the average of the two in the middle.
    pub median: f64,
    /// The arithmetic mean.
    pub average: f64,
    /// The sample's standard deviation (over n - 1); None for a single run.
    pub stddev: Option<f64>,
}

impl Summary {
    /// None without figures.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len() as f64;
        let average = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|figure| (figure - average).powi(2)).sum();
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Self {
            min,
            max,
            median: f64::midpoint(sorted[lower], sorted[upper]),
            average,
            stddev: (sorted.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
        })
    }

    /// By how many per cent this average is higher than that of `base`.
    pub fn improvement_over(&self, base: &Self) -> f64 {
        100.0 * (self.average / base.average - 1.0)
    }

    /// Do the ranges from min to max overlap?
    pub fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_known_data() {
        // Sum of squares about the mean 5: 32, over 7.
        let summary = Summary::of(&[4.0, 9.0, 2.0, 4.0, 5.0, 5.0, 7.0, 4.0]).unwrap();
        assert_eq!((summary.min, summary.max), (2.0, 9.0));
        assert_eq!((summary.median, summary.average), (4.5, 5.0));
        assert!((summary.stddev.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn an_odd_number_has_a_middle_one() {
        let summary = Summary::of(&[3.0, 100.0, 1.0]).unwrap();
        assert_eq!(summary.median, 3.0);
    }

    #[test]
    fn one_run_has_no_deviation_and_none_no_figures() {
        let one = Summary::of(&[7.5]).unwrap();
        assert_eq!((one.min, one.max, one.median, one.average), (7.5, 7.5, 7.5, 7.5));
        assert_eq!(one.stddev, None);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn improvement_is_of_averages() {
        let base = Summary::of(&[100.0, 300.0]).unwrap();
        let better = Summary::of(&[220.0]).unwrap();
        assert!((better.improvement_over(&base) - 10.0).abs() < 1e-9);
        let worse = Summary::of(&[150.0]).unwrap();
        assert!((worse.improvement_over(&base) + 25.0).abs() < 1e-9);
    }

    #[test]
    fn spreads_overlap_when_they_touch() {
        let summary = |figures: &[f64]| Summary::of(figures).unwrap();
        let base = summary(&[10.0, 20.0]);
        assert!(base.overlaps(&summary(&[20.0, 30.0])) && base.overlaps(&summary(&[12.0, 13.0])));
        assert!(summary(&[5.0, 50.0]).overlaps(&base) && summary(&[1.0, 10.0]).overlaps(&base));
        assert!(!base.overlaps(&summary(&[20.5, 30.0])) && !base.overlaps(&summary(&[1.0, 9.0])));
    }
}
