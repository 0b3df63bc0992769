//! Checks the statistics against NumPy, SciPy and statsmodels: `reference/make.py` made `known.json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    Interval, correction::holm, fairness, median_bootstrap, outliers, permutation::rank_sum,
    quartiles, ratio_of_medians, summarise,
};

const SEED: u64 = 11;

#[derive(Deserialize)]
struct Known {
    samples: BTreeMap<String, OneSet>,
    pairs: BTreeMap<String, TwoSets>,
    holm: Vec<Family>,
    fairness: Vec<Shares>,
}

#[derive(Deserialize)]
struct OneSet {
    samples: Vec<f64>,
    min: f64,
    max: f64,
    median: f64,
    mean: f64,
    stddev: Option<f64>,
    quartiles: [f64; 2],
    interval: Option<[f64; 2]>,
    bootstrap: Option<Bootstrap>,
    /// Modified z-scores; None if the median distance from the median is zero.
    scores: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct TwoSets {
    a: Vec<f64>,
    b: Vec<f64>,
    rank_sum: f64,
    ratio: Option<Ratio>,
}

#[derive(Deserialize)]
struct Ratio {
    value: f64,
    #[serde(flatten)]
    bootstrap: Bootstrap,
}

/// A bootstrap interval, and the ranges of its ends with as few resamples as ours.
#[derive(Debug, Deserialize)]
struct Bootstrap {
    interval: [f64; 2],
    low_within: [f64; 2],
    high_within: [f64; 2],
}

impl Bootstrap {
    /// Asserts that the ends are in their ranges, which fails by chance once in 15,000 runs.
    fn assert_same(&self, name: &str, Interval { low, high }: Interval) {
        // The reference figures are rounded to another digit.
        let within = |end: f64, [from, to]: [f64; 2]| from - 1e-9 <= end && end <= to + 1e-9;
        assert!(within(low, self.low_within), "{name}: {low}, not {:?}", self.interval);
        assert!(within(high, self.high_within), "{name}: {high}, not {:?}", self.interval);
    }
}

#[derive(Deserialize)]
struct Family {
    p: Vec<f64>,
    adjusted: Vec<f64>,
}

#[derive(Deserialize)]
struct Shares {
    shares: Vec<u64>,
    jain: f64,
}

fn known() -> Known {
    serde_json::from_str(include_str!("reference/known.json")).unwrap()
}

#[track_caller]
fn assert_same(what: &str, ours: f64, theirs: f64) {
    let error = (ours - theirs).abs();
    assert!(error <= 1e-9 * theirs.abs().max(1.0), "{what}: {ours} where they have {theirs}");
}

#[test]
fn single_sample_statistics_match_references() {
    let mut bootstrapped = 0;
    for (name, known) in known().samples {
        let ours = summarise(&known.samples).unwrap();
        let spread = quartiles(&known.samples).unwrap();
        for (ours, theirs) in [
            (ours.min, known.min),
            (ours.max, known.max),
            (ours.median.value, known.median),
            (spread.median, known.median),
            (ours.mean, known.mean),
            (ours.stddev.unwrap_or(0.0), known.stddev.unwrap_or(0.0)),
            (spread.lower, known.quartiles[0]),
            (spread.upper, known.quartiles[1]),
        ] {
            assert_same(&name, ours, theirs);
        }
        assert_eq!(ours.stddev.is_some(), known.stddev.is_some(), "{name}");
        let interval = known.interval.map(|[low, high]| Interval { low, high });
        assert_eq!(ours.median.interval, interval, "{name}");
        if let Some(theirs) = known.scores.filter(|scores| scores.len() >= outliers::ENOUGH) {
            for (ours, theirs) in outliers::scores(&known.samples).into_iter().zip(&theirs) {
                assert_same(&name, ours, *theirs);
            }
            let far: Vec<bool> = theirs.iter().map(|score| score.abs() > 3.5).collect();
            assert_eq!(outliers::flags(&known.samples), far, "{name}");
        }
        let ours = median_bootstrap(&known.samples, SEED);
        assert_eq!(ours.is_some(), known.bootstrap.is_some(), "{name}");
        if let (Some(ours), Some(theirs)) = (ours, known.bootstrap) {
            theirs.assert_same(&name, ours);
            bootstrapped += 1;
        }
    }
    assert!(bootstrapped >= 5);
}

#[test]
fn two_sample_statistics_match_references() {
    let mut ratios = 0;
    for (name, known) in known().pairs {
        assert_same(&name, rank_sum(&known.a, &known.b, SEED).unwrap(), known.rank_sum);
        let Some(theirs) = known.ratio else { continue };
        let ours = ratio_of_medians(&known.a, &known.b, SEED).unwrap();
        assert_same(&name, ours.value, theirs.value);
        theirs.bootstrap.assert_same(&name, ours.interval.unwrap());
        ratios += 1;
    }
    assert!(ratios >= 3);
}

#[test]
fn corrected_p_values_match_references() {
    for known in known().holm {
        for (ours, theirs) in holm(&known.p).into_iter().zip(known.adjusted) {
            assert_same("holm", ours, theirs);
        }
    }
}

#[test]
fn fairness_matches_references() {
    for known in known().fairness {
        assert_same("Jain", fairness(&known.shares).unwrap().jain, known.jain);
    }
}
