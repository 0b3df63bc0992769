//! What the comparisons of a study show: a sentence each, and the ratios behind it.

use std::fmt::Write;

use super::with_interval;
use crate::{names, si::ratio, words::sentences::p as probability};
use base::plural::count;
use study::{
    findings::{Comparison, Study, compare::Outcome},
    stats,
};

/// What all comparisons show, tested together; nothing if there are none.
pub fn conclusions(study: &Study) -> String {
    let mut text = match study.comparisons.len() {
        0 => return String::new(),
        1 => "Does it differ? (rank-sum test, p below 0.05)\n".to_owned(),
        several => format!(
            "What differs? ({several} comparisons: rank-sum tests, p corrected by Holm, below 0.05)\n"
        ),
    };
    for its in &study.comparisons {
        let vcpus = study.points[its.of].point.vcpus.get();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}: {}", count(vcpus, "vCPU"), conclusion(study, its));
    }
    text
}

/// Both sides of a comparison by name, and what they have in common.
fn sides(study: &Study, its: &Comparison) -> (String, String, String) {
    let (of, against) = names::sides(study, its);
    let around = names::shared(study, its);
    let around = if around.is_empty() { around } else { format!("{around}: ") };
    (of, against, around)
}

pub(super) fn conclusion(study: &Study, its: &Comparison) -> String {
    let (of, against, around) = sides(study, its);
    let times = its.ratio.map_or_else(String::new, |times| format!(" {}", ratio(times.value)));
    let adjusted = its.verdict.adjusted;
    let p = adjusted.map_or_else(String::new, |_| format!(" (p {})", probability(adjusted)));
    let text = match its.outcome(study) {
        Outcome::More => format!("{of} beats {against}{times}{p}"),
        Outcome::Less => format!("{against} beats {of}{p}"),
        Outcome::Unclear => format!("no difference seen between {of} and {against}{p}"),
        Outcome::TooFew => {
            let least = stats::least_samples(study.comparisons.len());
            format!("{of} and {against}: too few runs to tell: at least {least} of each are needed")
        }
    };
    format!("{around}{text}")
}

/// The ratios behind a conclusion, with their intervals.
pub(super) fn ratios(study: &Study, its: &Comparison) -> String {
    let (of, against, around) = sides(study, its);
    let parts: Vec<String> = [("medians", its.ratio), ("pairs", its.paired)]
        .into_iter()
        .filter_map(|(by, estimate)| Some(format!("{} by {by}", with_interval(&estimate?))))
        .collect();
    match parts.is_empty() {
        true => format!("{around}{of}/{against} has no ratio: {against} did nothing"),
        false => format!("{around}{of}/{against} {}", parts.join(", ")),
    }
}
